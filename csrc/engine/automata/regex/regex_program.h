// Syntax trees compiled to a nondeterministic automaton with lookaround.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/automata/regex/regex_ast.h"
#include "engine/automata/regex/utf8_trie.h"

namespace constrain::regex {

using Pc = uint32_t;

enum class Op : uint8_t {
  character,    ///< reads a character of `trie` and continues at `next`
  split,        ///< continues at each of `targets`, earlier ones preferred
  loop,         ///< a split that leaves at `exit` after an empty iteration of its body
  look_ahead,   ///< continues at `next` while the text ahead matches from `target` (or, `negative`, does not)
  look_behind,  ///< continues at `next` if tracker `target` accepts here (or, `negative`, does not)
  text_start,   ///< continues at `next` if nothing has been read
  match,        ///< accepts here, whatever follows
  text_end,     ///< accepts at the end of the text
  anything      ///< accepts any well-formed text that follows; reads a character of `trie` and stays
};

struct Instruction {
  Op op = Op::match;
  bool negative = false;
  Pc next = 0;
  uint32_t target = 0;           // look_ahead: a pc, look_behind: a tracker; loop: its number
  Utf8Forest::Node trie = 0;     // character, anything
  std::vector<Pc> targets = {};  // split, loop
  Pc exit = 0;                   // loop: the one of `targets` that leaves it
};

struct Program {
  std::vector<Instruction> code;
  Utf8Forest tries;
  Pc start = 0;
  std::vector<Pc> trackers;  ///< starts of the automata for lookbehind, which read all text from the beginning
  bool has_look = false;
  std::vector<bool> alive;         ///< by pc: acceptance is reachable after something has been read
  std::vector<bool> certain;       ///< by pc: ... without passing any lookaround; empty if there are none
  std::vector<bool> looks_behind;  ///< by pc: a lookbehind is reachable; empty if there are no lookarounds
};

inline constexpr size_t kMaxInstructions = 200'000;

/// Compiles a syntax tree. With `search` a match may lie anywhere in the text. `whole_only` declares that the ends of
/// shorter matches do not matter, which lets lookaheads at the end of a pattern be decided at once. Throws
/// ResourceLimit("regex_states") if repetition makes a program too long.
Program compile(const Ast& ast, bool search, bool whole_only);

}  // namespace constrain::regex
