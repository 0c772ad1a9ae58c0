#include "engine/automata/regex/regex_parser.h"

#include <algorithm>

namespace constrain::regex {

namespace {

constexpr size_t kMaxDepth = 200;  // nested groups; later passes over the tree recurse

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }

}  // namespace

Ast parse(std::u32string_view pattern, const RegexOptions& options, Syntax syntax) {
  return Parser(pattern, options, syntax).parse();
}

Parser::Parser(std::u32string_view pattern, const RegexOptions& options, Syntax syntax)
    : pattern_(pattern),
      syntax_(syntax),
      flags_{options.ignore_case, options.dot_all, options.multi_line, options.verbose},
      reader_(options.dialect, options.classes) {}

Ast Parser::parse() {
  parse_global_flags();
  const NodeId root = parse_choice();
  if (!at_end()) fail("unbalanced parenthesis", at_);
  ast_.root = root;
  return std::move(ast_);
}

/// Parses flags of the whole pattern, such as `(?i)(?m)`.
void Parser::parse_global_flags() {
  for (skip_ignored(); next_is(U"(?"); skip_ignored()) {
    const size_t close = pattern_.find(U')', at_);
    if (close == pattern_.npos || close == at_ + 2) return;
    Flags flags = flags_;
    for (const char32_t letter : pattern_.substr(at_ + 2, close - at_ - 2)) {
      if (!set_flag(flags, letter, true)) return;
    }
    flags_ = flags;
    at_ = close + 1;
  }
}

NodeId Parser::parse_choice() {
  std::vector<NodeId> alternatives = {parse_sequence()};
  while (skip(U"|")) alternatives.push_back(parse_sequence());
  return ast_.add_choice(std::move(alternatives));
}

NodeId Parser::parse_sequence() {
  std::vector<NodeId> children;
  for (skip_ignored(); !at_end() && !next_is(U"|") && !next_is(U")"); skip_ignored()) {
    const size_t atom_at = at_;
    const NodeId atom = parse_atom();
    skip_ignored();
    children.push_back(parse_quantified(atom, atom_at));
  }
  check_possessive(children);
  return ast_.add_sequence(std::move(children));
}

/// Skips comments, and with the flag x also white space.
void Parser::skip_ignored() {
  while (!at_end()) {
    if (python() && next_is(U"(?#")) {
      const size_t close = pattern_.find(U')', at_);
      if (close == pattern_.npos) fail("missing ), unterminated comment", at_);
      at_ = close + 1;
    } else if (flags_.verbose && std::u32string_view(U" \t\n\r\f\v").find(pattern_[at_]) != pattern_.npos) {
      ++at_;
    } else if (flags_.verbose && next_is(U"#")) {
      at_ = std::min(pattern_.find(U'\n', at_), pattern_.size());
    } else {
      return;
    }
  }
}

// ---- Quantifiers.

NodeId Parser::parse_quantified(NodeId atom, size_t atom_at) {
  const size_t start = at_;
  const auto counts = parse_counts();
  if (!counts) return atom;
  if (!repeatable(pattern_.substr(atom_at))) fail("nothing to repeat", start);
  Node repeat = {.kind = Kind::repeat, .children = {atom}, .low = counts->low, .high = counts->high};
  const bool possessive = python() && skip(U"+");
  repeat.greedy = possessive || !skip(U"?");
  const NodeId id = ast_.add(std::move(repeat));
  if (possessive) possessive_.push_back({id, atom_at});
  skip_ignored();
  const size_t second = at_;
  if (parse_counts()) fail("multiple repeat", second);
  return id;
}

/// True if a quantifier may follow. Assertions are not repeatable: `^ $ \b \B \A \Z`, and with the `u` rules
/// lookaround.
bool Parser::repeatable(std::u32string_view atom) const {
  if (atom.starts_with(U"^") || atom.starts_with(U"$")) return false;
  if (atom.starts_with(U"\\")) return std::u32string_view(U"bBAZz").find(atom[1]) == atom.npos;
  const bool look =
      atom.starts_with(U"(?=") || atom.starts_with(U"(?!") || atom.starts_with(U"(?<=") || atom.starts_with(U"(?<!");
  return !look || syntax_ != Syntax::ecma_unicode;
}

std::optional<Parser::Counts> Parser::parse_counts() {
  if (skip(U"*")) return Counts{0, kUnbounded};
  if (skip(U"+")) return Counts{1, kUnbounded};
  if (skip(U"?")) return Counts{0, 1};
  return next_is(U"{") ? parse_braces() : std::nullopt;
}

/// Parses `{m}`, `{m,}`, `{m,n}` and in Python `{,n}` and `{,}`; anything else is no quantifier, and nothing is
/// skipped.
std::optional<Parser::Counts> Parser::parse_braces() {
  const size_t start = at_++;
  const auto low = parse_integer();
  const bool comma = skip(U",");
  const auto high = comma ? parse_integer().value_or(kUnbounded) : low.value_or(0);
  if (!(low || (python() && comma)) || !skip(U"}")) {
    at_ = start;
    if (syntax_ == Syntax::ecma_unicode) fail("incomplete quantifier", start);
    return std::nullopt;
  }
  if (low.value_or(0) > high) fail("the least count is greater than the greatest", start);
  return Counts{low.value_or(0), high};
}

std::optional<uint32_t> Parser::parse_integer() {
  const size_t start = at_;
  uint64_t value = 0;
  for (; !at_end() && is_digit(pattern_[at_]); ++at_) {
    value = std::min<uint64_t>(value * 10 + (pattern_[at_] - '0'), kUnbounded - 1);
  }
  return at_ == start ? std::nullopt : std::optional(static_cast<uint32_t>(value));
}

/// Refuses possessive quantifiers that may change the language. They do not if all matches from one place have the same
/// length, nor in repeats of a set that the following text cannot begin with.
void Parser::check_possessive(const std::vector<NodeId>& children) {
  for (size_t i = 0; i < children.size(); ++i) {
    const auto found = std::ranges::find(possessive_, children[i], &Possessive::node);
    if (found == possessive_.end()) continue;
    const Node& atom = ast_[ast_[children[i]].children[0]];
    if (has_one_length(children[i])) continue;
    if (atom.kind != Kind::set || !follows_apart(children, i + 1, atom.set)) fail_possessive(found->at);
  }
}

bool Parser::has_one_length(NodeId node) const {
  const Width size = width(ast_, node);
  return size.low == size.high && size.high != kUnbounded;
}

void Parser::fail_possessive(size_t at) {
  fail("possessive quantifiers and atomic groups work only where they change nothing", at);
}

/// True if none of `children` from `next` on can begin with a member of `set`.
bool Parser::follows_apart(const std::vector<NodeId>& children, size_t next, const CharSet& set) const {
  for (; next < children.size(); ++next) {
    if (has_look(ast_, children[next]) || !(first_characters(ast_, children[next]) & set).empty()) return false;
    if (width(ast_, children[next]).low > 0) return true;
  }
  return depth_ == 0;
}

// ---- Atoms and groups.

NodeId Parser::parse_atom() {
  const size_t start = at_;
  const char32_t c = pattern_[at_++];
  switch (c) {
    case '(':
      return parse_group(start);
    case '[':
      return parse_set();
    case '.':
      return ast_.add_set(flags_.dot_all ? CharSet::all() : reader_.dot());
    case '^':
      return flags_.multi_line ? add_line_start() : add_text_start();
    case '$':
      return flags_.multi_line ? add_line_end(start) : add_dollar(start);
    case '\\':
      return parse_escape();
    case '*':
    case '+':
    case '?':
      fail("nothing to repeat", start);
    case '{':
      at_ = start;
      if (parse_braces()) fail("nothing to repeat", start);
      at_ = start + 1;
      break;
    case '}':
    case ']':
      if (syntax_ == Syntax::ecma_unicode) fail("lone bracket", start);
      break;
    default:
      break;
  }
  return ast_.add_set(folded(CharSet::single(c)));
}

NodeId Parser::parse_group(size_t open_at) {
  if (++depth_ > kMaxDepth) fail("groups are nested too deeply", open_at);
  const Flags flags = flags_;
  const NodeId group = parse_group_body(open_at);
  flags_ = flags;
  --depth_;
  return group;
}

NodeId Parser::parse_group_body(size_t open_at) {
  if (!skip(U"?")) {
    if (next_is(U"*")) fail("verbs are not supported", at_);
    return parse_until_close(open_at);
  }
  if (skip(U":")) return parse_until_close(open_at);
  if (skip(U"=")) return parse_look(open_at, false, false);
  if (skip(U"!")) return parse_look(open_at, false, true);
  if (skip(U"<=")) return parse_look(open_at, true, false);
  if (skip(U"<!")) return parse_look(open_at, true, true);
  if (python() && skip(U">")) {
    const NodeId group = parse_until_close(open_at);
    if (!has_one_length(group)) fail_possessive(open_at);
    return group;
  }
  if (skip(U"P<") || skip(U"<")) {
    skip_group_name();
    return parse_until_close(open_at);
  }
  if (next_is(U"P=")) fail("backreferences are not supported", open_at);
  if (next_is(U"P>") || next_is(U"R") || next_is(U"&") || (!at_end() && is_digit(pattern_[at_]))) {
    fail("recursion is not supported", open_at);
  }
  if (next_is(U"(")) fail("conditionals are not supported", open_at);
  return parse_flag_group(open_at);
}

NodeId Parser::parse_until_close(size_t open_at) {
  const NodeId body = parse_choice();
  if (!skip(U")")) fail("missing ), unterminated subpattern", open_at);
  return body;
}

void Parser::skip_group_name() {
  const size_t start = at_;
  const size_t close = pattern_.find(U'>', at_);
  if (close == pattern_.npos || close == start) fail("missing group name", start);
  auto fits = [](char32_t c) {
    return c == '_' || c == '$' || c > 127 || is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z');
  };
  for (; at_ < close; ++at_) {
    if (!fits(pattern_[at_]) || (at_ == start && is_digit(pattern_[at_]))) fail("bad character in group name", at_);
  }
  at_ = close + 1;
}

NodeId Parser::parse_look(size_t open_at, bool behind, bool negative) {
  if (in_lookbehind_ && !behind) fail("a lookahead inside a lookbehind is not supported", open_at);
  const ClassReader reader = reader_;
  const bool outer_lookbehind = in_lookbehind_;
  if (negative) reader_ = reader_.negated();
  in_lookbehind_ |= behind;
  const NodeId body = parse_until_close(open_at);
  reader_ = reader;
  in_lookbehind_ = outer_lookbehind;
  if (behind && python()) {
    const Width size = width(ast_, body);
    if (size.low != size.high) fail("look-behind requires fixed-width pattern", open_at);
  }
  return ast_.add_look(body, behind, negative);
}

/// Parses flags of a group, `(?i-s:...)`.
NodeId Parser::parse_flag_group(size_t open_at) {
  Flags flags = flags_;
  bool value = true;
  for (; !at_end() && !next_is(U":") && !next_is(U")"); ++at_) {
    if (pattern_[at_] == '-' && value) {
      value = false;
    } else if (!set_flag(flags, pattern_[at_], value)) {
      fail("unknown extension or flag", at_);
    }
  }
  if (at_end()) fail("missing ), unterminated flags", open_at);
  if (!skip(U":")) fail("flags for the whole pattern must stand at its start", open_at);
  flags_ = flags;
  return parse_until_close(open_at);
}

bool Parser::set_flag(Flags& flags, char32_t letter, bool value) const {
  switch (letter) {
    case 'i':
      flags.ignore_case = value;
      return true;
    case 'm':
      flags.multi_line = value;
      return true;
    case 's':
      flags.dot_all = value;
      return true;
    case 'x':
      flags.verbose = value;
      return python();
    case 'a':
      flags.ascii = true;
      return python() && value;
    case 'u':
      flags.ascii = false;
      return python() && value;
    default:
      return false;
  }
}

}  // namespace constrain::regex
