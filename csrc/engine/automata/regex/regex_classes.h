// Characters that the two dialects see differently: \d \w \s . \b, line ends, and case.
#pragma once

#include "engine/automata/regex/regex.h"
#include "engine/automata/regex/regex_ast.h"
#include "engine/text/charset.h"

namespace constrain::regex {

/// A set as each dialect reads it.
struct Readings {
  CharSet python, ecma;
};

/// Picks readings: those of the dialect, or the smaller (`inner`) or larger (`outer`) language of the two.
class ClassReader {
 public:
  ClassReader(Dialect dialect, Classes classes) : dialect_(dialect), classes_(classes) {}

  /// How to read what is about to be negated.
  ClassReader negated() const;

  /// `\d`, `\w` or `\s`, for the letters d, w and s; only ASCII characters with `ascii` (Python's flag a).
  CharSet escape_class(char32_t letter, bool ascii) const;
  CharSet dot() const;
  CharSet line_ends() const;  ///< where `^` and `$` match with the flag m
  CharSet fold(const CharSet& set) const;

  /// `$` without the flag m: also before a final newline?
  bool end_before_newline() const;

  /// `\b`, or `\B` with `negative`.
  NodeId word_boundary(Ast& ast, bool negative, bool ascii) const;

 private:
  CharSet pick(const Readings& readings) const;

  Dialect dialect_;
  Classes classes_;
};

}  // namespace constrain::regex
