#include "engine/automata/regex/regex_classes.h"

#include "engine/text/unicode.h"

namespace constrain::regex {

namespace {

const CharSet& ascii_digits() {
  static const CharSet set = {{'0', '9'}};
  return set;
}

const CharSet& ascii_word() {
  static const CharSet set = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
  return set;
}

/// Unassigned characters: a later Unicode version, and so another Python, may make them letters or digits.
const CharSet& unassigned() {
  static const CharSet set = *unicode_set("gc", "Cn");
  return set;
}

Readings digit_readings() {
  static const CharSet python = *unicode_set("gc", "Nd");
  return {python, ascii_digits()};
}

Readings word_readings() {
  static const CharSet python = *unicode_set("gc", "L") | *unicode_set("gc", "N") | CharSet::single('_');
  return {python, ascii_word()};
}

Readings space_readings() {
  static const CharSet common = CharSet{{'\t', '\r'}, {0x2028, 0x2029}} | *unicode_set("gc", "Zs");
  static const CharSet python = common | CharSet{{0x1C, 0x1F}, {0x85, 0x85}};
  static const CharSet ecma = common | CharSet::single(0xFEFF);
  return {python, ecma};
}

const CharSet& ecma_line_ends() {
  static const CharSet set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

}  // namespace

ClassReader ClassReader::negated() const {
  ClassReader other = *this;
  if (classes_ == Classes::inner) other.classes_ = Classes::outer;
  if (classes_ == Classes::outer) other.classes_ = Classes::inner;
  return other;
}

CharSet ClassReader::pick(const Readings& readings) const {
  switch (classes_) {
    case Classes::inner:
      return readings.python & readings.ecma;
    case Classes::outer:
      return readings.python | readings.ecma;
    default:
      return dialect_ == Dialect::python ? readings.python : readings.ecma;
  }
}

CharSet ClassReader::escape_class(char32_t letter, bool ascii) const {
  const CharSet ascii_set = {{0, 0x7F}};
  Readings readings = letter == 'd' ? digit_readings() : letter == 'w' ? word_readings() : space_readings();
  if (ascii) {
    readings.python = letter == 's' ? CharSet{{'\t', '\r'}, {' ', ' '}} : readings.python & ascii_set;
  } else if (classes_ == Classes::outer && letter != 's') {
    readings.python = readings.python | unassigned();
  }
  return pick(readings);
}

CharSet ClassReader::dot() const { return pick({~CharSet::single('\n'), ~ecma_line_ends()}); }

CharSet ClassReader::line_ends() const { return pick({CharSet::single('\n'), ecma_line_ends()}); }

CharSet ClassReader::fold(const CharSet& set, bool only_ascii) const {
  const CharSet ascii = {{0, 0x7F}};
  if (only_ascii) return set | (fold_case(set & ascii, CaseRule::python) & ascii);
  if (classes_ != Classes::inner) {
    return pick({fold_case(set, CaseRule::python), fold_case(set, CaseRule::simple_folding)});
  }
  // ECMA-262 without `u` does not fold between ASCII and other characters.
  auto agreed = [](const CharSet& part, const CharSet& room) {
    return fold_case(part, CaseRule::python) & fold_case(part, CaseRule::simple_folding) & room;
  };
  return agreed(set & ascii, ascii) | agreed(set - ascii, ~ascii);
}

bool ClassReader::end_before_newline() const {
  return classes_ == Classes::outer || (classes_ == Classes::dialect && dialect_ == Dialect::python);
}

namespace {

/// Two neighbouring characters: `before` and `after` are membership in a set, or non-membership, which also holds at
/// the ends of the text.
struct Side {
  CharSet set;
  bool member;
};

NodeId between(Ast& ast, const Side& before, const Side& after) {
  const NodeId behind = ast.add_look(ast.add_set(before.set), true, !before.member);
  const NodeId ahead = ast.add_look(ast.add_set(after.set), false, !after.member);
  return ast.add_sequence({behind, ahead});
}

NodeId boundary(Ast& ast, const Side& in, const Side& out, bool negative) {
  return ast.add_choice({between(ast, in, negative ? in : out), between(ast, out, negative ? out : in)});
}

}  // namespace

NodeId ClassReader::word_boundary(Ast& ast, bool negative, bool ascii) const {
  const CharSet word = escape_class('w', ascii);
  const CharSet other = negated().escape_class('w', ascii);
  // One side must be a word character in the requested interpretation, the other must not be one in the opposite
  // interpretation.
  std::vector<NodeId> places = {boundary(ast, {word, true}, {other, false}, negative)};
  if (!negative || classes_ == Classes::outer || (classes_ == Classes::dialect && dialect_ == Dialect::ecma)) {
    return ast.add_choice(std::move(places));
  }
  if (classes_ == Classes::inner) {
    const CharSet only_python = ClassReader(Dialect::python, Classes::dialect).escape_class('w', ascii) - word;
    places.push_back(between(ast, {only_python, true}, {only_python, true}));
  }
  // Before Python 3.14 `\B` does not match in the empty text.
  const NodeId any = ast.add_set(CharSet::all());
  const NodeId not_empty = ast.add_choice({ast.add_look(any, true, false), ast.add_look(any, false, false)});
  return ast.add_sequence({not_empty, ast.add_choice(std::move(places))});
}

}  // namespace constrain::regex
