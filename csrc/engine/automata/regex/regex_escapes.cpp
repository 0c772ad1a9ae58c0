#include "engine/automata/regex/regex_parser.h"
#include "engine/text/unicode.h"

namespace constrain::regex {

namespace {

constexpr std::u32string_view kSyntaxCharacters = U"^$\\.*+?()[]{}|/";

bool is_ascii_letter(char32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 128; }

int hex_value(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  const char32_t lower = c | 32;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : -1;
}

std::string in_quotes(char32_t c) {
  std::string text = "'\\";
  append_utf8(text, c);
  return text + "'";
}

}  // namespace

/// Parses an escape outside square brackets, after the backslash.
NodeId Parser::parse_escape() {
  const size_t start = at_ - 1;
  if (at_end()) fail("the pattern ends with a backslash", start);
  if (const auto place = parse_place_escape(start)) return *place;
  const char32_t c = pattern_[at_];
  const bool octal =
      python() && at_ + 2 < pattern_.size() && c >= '1' && c <= '3' && is_octal(at_ + 1) && is_octal(at_ + 2);
  if (c >= '1' && c <= '9' && !octal) fail("backreferences are not supported", start);
  if (c == 'k' && !python()) fail("backreferences are not supported", start);
  const ClassItem item = parse_escaped_item(false);
  return ast_.add_set(item.folds ? folded(item.set) : item.set);
}

/// `\b`, `\B`, and in Python `\A`, `\Z` and `\z`.
std::optional<NodeId> Parser::parse_place_escape(size_t start) {
  const char32_t c = pattern_[at_];
  const bool text_place = c == 'A' || c == 'Z' || c == 'z';
  if (text_place && !python()) {
    fail(in_quotes(c) + " is a letter in ECMA-262 and a place in other dialects; use ^ or $ for the place", start);
  }
  if (c != 'b' && c != 'B' && !text_place) return std::nullopt;
  ++at_;
  if (c == 'A') return add_text_start();
  if (text_place) return add_text_end(start);
  if (in_lookbehind_) fail("a word boundary inside a lookbehind is not supported", start);
  return reader_.word_boundary(ast_, c == 'B', flags_.ascii);
}

Parser::ClassItem Parser::parse_escaped_item(bool in_class) {
  if (at_end()) fail("the pattern ends with a backslash", at_ - 1);
  if (auto item = parse_class_escape()) return std::move(*item);
  const char32_t c = parse_character_escape(in_class);
  return {CharSet::single(c), c};
}

/// `\d \w \s`, `\p{..}`, and their complements with capital letters. Python looks the first three up without regard to
/// case.
std::optional<Parser::ClassItem> Parser::parse_class_escape() {
  const char32_t c = pattern_[at_], lower = c | 32;
  const bool negated = c != lower;
  if (lower != 'd' && lower != 'w' && lower != 's' && lower != 'p') return std::nullopt;
  const size_t start = at_++ - 1;
  const ClassReader reader = negated ? reader_.negated() : reader_;
  CharSet set = lower == 'p' ? parse_property(start) : reader.escape_class(lower, flags_.ascii);
  const bool folds = lower == 'p' || !python();
  if (!negated) return ClassItem{std::move(set), {}, folds};
  return ClassItem{~(folds && flags_.ignore_case ? reader.fold(set, flags_.ascii) : set), {}, folds};
}

/// `{L}`, `{Greek}`, `{sc=Greek}`... after `\p`, or one letter that names a category.
CharSet Parser::parse_property(size_t start) {
  std::u32string_view body;
  if (skip(U"{")) {
    const size_t close = pattern_.find(U'}', at_);
    if (close == pattern_.npos) fail("missing } after \\p{", start);
    body = pattern_.substr(at_, close - at_);
    at_ = close + 1;
  } else if (!at_end() && syntax_ != Syntax::ecma_unicode) {
    body = pattern_.substr(at_++, 1);
  } else {
    fail("missing { after \\p", start);
  }
  std::string name;
  for (char32_t c : body) append_utf8(name, c);
  const size_t equals = name.find('=');
  const std::string property = equals == name.npos ? "" : name.substr(0, equals);
  const auto set = unicode_set(property, equals == name.npos ? name : name.substr(equals + 1));
  if (!set) fail("unknown property {" + name + "}", start);
  return *set;
}

char32_t Parser::parse_character_escape(bool in_class) {
  const size_t start = at_ - 1;
  const char32_t c = pattern_[at_++];
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      if (python()) return '\a';
      break;
    case 'b':
      if (in_class) return '\b';
      break;
    case 'c':
      if (!python()) return parse_control_escape(start);
      break;
    case 'x':
      return parse_hex(2, start);
    case 'u':
      return parse_unicode_escape(start);
    case 'U':
      if (python()) return checked_scalar(parse_hex(8, start), start);
      break;
    default:
      if (c >= '0' && c <= '9') return parse_digit_escape(c, in_class, start);
  }
  return parse_identity_escape(c, in_class, start);
}

char32_t Parser::parse_control_escape(size_t start) {
  if (at_end() || !is_ascii_letter(pattern_[at_])) fail("\\c needs a letter", start);
  return pattern_[at_++] & 31;
}

/// `\uHHHH`, in ECMA-262 also surrogate pairs and `\u{H...}`.
char32_t Parser::parse_unicode_escape(size_t start) {
  if (!python() && skip(U"{")) {
    const size_t close = pattern_.find(U'}', at_);
    if (close == pattern_.npos || close == at_ || close - at_ > 8) fail("bad escape \\u{", start);
    const char32_t scalar = checked_scalar(parse_hex(close - at_, start), start);
    ++at_;
    return scalar;
  }
  const char32_t unit = parse_hex(4, start);
  if (python() || unit < kFirstSurrogate || unit >= kFirstLowSurrogate || !skip(U"\\u")) {
    return checked_scalar(unit, start);
  }
  const char32_t low = parse_hex(4, start);
  if (low < kFirstLowSurrogate || low > kLastSurrogate) fail("unpaired surrogate", start);
  return 0x10000 + ((unit - kFirstSurrogate) << 10) + (low - kFirstLowSurrogate);
}

char32_t Parser::checked_scalar(char32_t code, size_t start) const {
  if (code >= kFirstSurrogate && code <= kLastSurrogate) fail("unpaired surrogate", start);
  if (code > kLastScalar) fail("the escape is beyond the last character", start);
  return code;
}

char32_t Parser::parse_hex(size_t digits, size_t start) {
  char32_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++at_) {
    const int digit = at_end() ? -1 : hex_value(pattern_[at_]);
    if (digit < 0) fail("an escape needs more hexadecimal digits", start);
    value = value << 4 | static_cast<char32_t>(digit);
  }
  return value;
}

bool Parser::is_octal(size_t at) const { return at < pattern_.size() && pattern_[at] >= '0' && pattern_[at] <= '7'; }

/// `\0`, and Python's octal escapes `\0oo` and `\ooo`.
char32_t Parser::parse_digit_escape(char32_t first, bool in_class, size_t start) {
  if (!python()) {
    if (first == '0' && (at_end() || pattern_[at_] < '0' || pattern_[at_] > '9')) return 0;
    fail("octal escapes are not supported", start);
  }
  const bool leads_octal = first == '0' || (first <= '7' && (in_class || (is_octal(at_) && is_octal(at_ + 1))));
  if (!leads_octal) fail("bad escape " + in_quotes(first), start);
  char32_t value = first - '0';
  for (int more = 2; more > 0 && is_octal(at_); --more) value = value << 3 | (pattern_[at_++] - '0');
  if (value > 255) fail("octal escape outside of 0-0o377", start);
  return value;
}

char32_t Parser::parse_identity_escape(char32_t letter, bool in_class, size_t start) {
  const bool allowed = syntax_ == Syntax::ecma_unicode
                           ? kSyntaxCharacters.find(letter) != kSyntaxCharacters.npos || (in_class && letter == '-')
                           : !is_ascii_letter(letter) || syntax_ == Syntax::ecma_legacy;
  if (!allowed) fail("bad escape " + in_quotes(letter), start);
  return letter;
}

}  // namespace constrain::regex
