// Characters that the dialects interpret differently: \d \w \s . \b, line ends, and case.
#pragma once

#include "engine/automata/regex/regex.h"
#include "engine/automata/regex/regex_ast.h"
#include "engine/text/charset.h"

namespace constrain::regex {

/// A set in each dialect.
struct Readings {
  CharSet python, ecma;
};

/// Interprets character classes: as in the dialect, or the smaller (`inner`) or larger (`outer`) set of both.
class ClassReader {
 public:
  ClassReader(Dialect dialect, Classes classes) : dialect_(dialect), classes_(classes) {}

  /// The interpretation within a negation.
  ClassReader negated() const;

  /// `\d`, `\w` or `\s`, for the letters d, w and s; only ASCII characters with `ascii` (Python's flag a).
  CharSet escape_class(char32_t letter, bool ascii) const;
  CharSet dot() const;
  CharSet line_ends() const;  ///< where `^` and `$` match with the flag m
  /// The characters that are in the set when case is ignored; that of ASCII letters only with
  /// `only_ascii`.
  CharSet fold(const CharSet& set, bool only_ascii) const;

  /// True if `$` without the flag m also matches before a final newline.
  bool end_before_newline() const;

  /// `\b`, or `\B` with `negative`.
  NodeId word_boundary(Ast& ast, bool negative, bool ascii) const;

 private:
  CharSet pick(const Readings& readings) const;

  Dialect dialect_;
  Classes classes_;
};

}  // namespace constrain::regex
