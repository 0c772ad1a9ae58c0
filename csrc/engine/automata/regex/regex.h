// Regular expressions to automata.
#pragma once

#include <string_view>

#include "engine/automata/automaton.h"
#include "engine/base/byte_set.h"

namespace constrain {

/// How a pattern is read.
enum class Dialect {
  python,  ///< `re` of Python
  ecma  ///< ECMA-262 with the `u` flag, and its legacy rules where a pattern does not parse so (JSON Schema `pattern`)
};

/// Which characters `\d \w \s .` and case folding stand for. The two readings of a pattern differ there, and a language
/// that is safe under both takes the smaller one (`inner`), or under negation the larger one (`outer`).
enum class Classes { dialect, inner, outer };

struct RegexOptions {
  Dialect dialect = Dialect::python;
  Classes classes = Classes::dialect;
  bool search = false;  ///< the pattern may match anywhere in the text, as JSON Schema's `pattern`; else the whole text
  bool leftmost_first =
      false;  ///< only matches that a backtracking matcher prefers, as Lark's terminals (`/a|ab/` never matches "ab")
  bool ignore_case = false, dot_all = false, multi_line = false, verbose = false;  ///< the flags i s m x
};

/// The language of a pattern (UTF-8). Throws RegexError with the offset of what is wrong or unsupported:
/// backreferences, recursion, conditionals, what looks ahead inside a lookbehind, possessive quantifiers where they
/// change the language. Throws ResourceLimit("regex_states") where counted repetition unrolls to too much.
AutomatonPtr compile_regex(std::string_view pattern, const RegexOptions& options);

/// A pattern that is to match a part of a text, as a backtracking matcher prefers it.
struct PartialPattern {
  AutomatonPtr language;  ///< what it matches where nothing follows
  ByteSet watched;        ///< first bytes of texts that may change this where they follow, by its lookaheads
};
PartialPattern compile_partial_regex(std::string_view pattern);

}  // namespace constrain
