// Syntax trees compiled to a nondeterministic automaton with lookaround.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/automata/regex/regex_ast.h"
#include "engine/automata/regex/utf8_trie.h"

namespace constrain::regex {

using Pc = uint32_t;

enum class Op : uint8_t {
  character,    ///< reads a character of `trie` and goes on at `next`
  split,        ///< goes on at each of `targets`, earlier ones preferred
  loop,         ///< a split that leaves at once, at `exit`, when its body has just been passed without reading anything
  look_ahead,   ///< goes on at `next` while what follows does (or, `negative`, does not) match from `target`
  look_behind,  ///< goes on at `next` if tracker `target` accepts here (or, `negative`, does not)
  text_start,   ///< goes on at `next` if nothing has been read
  match,        ///< accepts; more text is another matter
  text_end,     ///< accepts if nothing follows
  anything      ///< accepts whatever follows, well-formed text provided; reads a character of `trie` and stays
};

struct Instruction {
  Op op = Op::match;
  bool negative = false;
  Pc next = 0;
  uint32_t target = 0;           // look_ahead: a pc, look_behind: a tracker; loop: its number
  Utf8Forest::Node trie = 0;     // character, anything
  std::vector<Pc> targets = {};  // split, loop
  Pc exit = 0;                   // loop: which of `targets` leaves it
};

struct Program {
  std::vector<Instruction> code;
  Utf8Forest tries;
  Pc start = 0;
  std::vector<Pc> trackers;  ///< starts of the automata that read all text from the beginning, for lookbehind
  bool has_look = false;
  std::vector<bool> alive;         ///< by pc: acceptance can be reached once something has been read
  std::vector<bool> certain;       ///< the same without passing any lookaround; only where there are some
  std::vector<bool> looks_behind;  ///< a lookbehind can still be reached; only where there are some lookarounds
};

inline constexpr size_t kMaxInstructions = 200'000;

/// With `search` a match may lie anywhere in the text. `whole_only` says that nobody cares where shorter matches end,
/// which lets lookaheads at the end of a pattern be decided at once.
/// Throws ResourceLimit("regex_states") where repetition makes a program too long.
Program compile(const Ast& ast, bool search, bool whole_only);

}  // namespace constrain::regex
