// Regular expressions to automata.
#pragma once

#include <string_view>

#include "engine/automata/automaton.h"
#include "engine/base/byte_set.h"

namespace constrain {

/// Syntax of a pattern.
enum class Dialect {
  python,  ///< `re` of Python
  ecma     ///< ECMA-262 with the `u` flag, or its legacy rules if that fails (JSON Schema `pattern`)
};

/// Characters that `\d \w \s .` and case folding stand for. The dialects differ there: a language that is safe under
/// both takes the smaller set (`inner`), or under negation the larger one (`outer`).
enum class Classes { dialect, inner, outer };

struct RegexOptions {
  Dialect dialect = Dialect::python;
  Classes classes = Classes::dialect;
  bool search = false;  ///< the pattern may match anywhere in the text, as JSON Schema's `pattern`; else the whole text
  bool leftmost_first = false;  ///< only matches that a backtracking matcher prefers, as in Lark's terminals (`/a|ab/`
                                ///< never matches "ab")
  bool ignore_case = false, dot_all = false, multi_line = false, verbose = false;  ///< the flags i s m x
};

/// Compiles the language of a pattern (UTF-8). Throws RegexError with the offset of an error or of an unsupported
/// construct: backreferences, recursion, conditionals, lookahead inside lookbehind, possessive quantifiers that change
/// the language. Throws ResourceLimit("regex_states") if counted repetition unrolls to too much.
AutomatonPtr compile_regex(std::string_view pattern, const RegexOptions& options);

/// A pattern for a part of a text, matched as a backtracking matcher prefers.
struct PartialPattern {
  AutomatonPtr language;  ///< matches at the end of a text
  ByteSet watched;        ///< first bytes of texts that may change the match by lookahead
};
PartialPattern compile_partial_regex(std::string_view pattern);

}  // namespace constrain
