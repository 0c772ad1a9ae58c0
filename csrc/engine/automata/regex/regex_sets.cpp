#include "engine/automata/regex/regex_parser.h"

namespace constrain::regex {

/// Parses a set in square brackets, after the opening one.
NodeId Parser::parse_set() {
  const size_t open_at = at_ - 1;
  const bool negated = skip(U"^");
  const ClassReader reader = reader_;
  if (negated) reader_ = reader_.negated();
  CharSet set = parse_set_items(open_at);
  reader_ = reader;
  return ast_.add_set(negated ? ~set : std::move(set));
}

CharSet Parser::parse_set_items(size_t open_at) {
  std::vector<CharSet::Range> ranges, as_they_are;
  auto add = [&](const ClassItem& item) {
    std::vector<CharSet::Range>& to = item.folds ? ranges : as_they_are;
    to.insert(to.end(), item.set.ranges().begin(), item.set.ranges().end());
  };
  bool first = true;
  while (true) {
    if (at_end()) fail("unterminated character set", open_at);
    // In Python a closing bracket right at the start is a member.
    if (next_is(U"]") && !(first && python())) break;
    first = false;
    const size_t item_at = at_;
    const ClassItem low = parse_set_item();
    if (!next_is(U"-") || at_ + 1 >= pattern_.size() || pattern_[at_ + 1] == ']') {
      add(low);
      continue;
    }
    ++at_;
    const ClassItem high = parse_set_item();
    if (low.single && high.single) {
      if (*low.single > *high.single) fail("bad character range", item_at);
      ranges.push_back({*low.single, *high.single});
    } else if (syntax_ == Syntax::ecma_legacy) {
      add(low);
      ranges.push_back({'-', '-'});
      add(high);
    } else {
      fail("bad character range", item_at);
    }
  }
  ++at_;
  return folded(CharSet(std::move(ranges))) | CharSet(std::move(as_they_are));
}

Parser::ClassItem Parser::parse_set_item() {
  const char32_t c = pattern_[at_++];
  if (c == '\\') return parse_escaped_item(true);
  return {CharSet::single(c), c};
}

// ---- Assertions.

NodeId Parser::add_text_start() { return ast_.add({.kind = Kind::text_start}); }

NodeId Parser::add_text_end(size_t at) {
  if (in_lookbehind_) fail("the end of the text inside a lookbehind is not supported", at);
  return ast_.add({.kind = Kind::text_end});
}

NodeId Parser::add_line_start() {
  return ast_.add_choice({add_text_start(), ast_.add_look(ast_.add_set(reader_.line_ends()), true, false)});
}

NodeId Parser::add_line_end(size_t at) {
  const NodeId end = add_text_end(at);
  return ast_.add_choice({end, ast_.add_look(ast_.add_set(reader_.line_ends()), false, false)});
}

/// `$` without the flag m.
NodeId Parser::add_dollar(size_t at) {
  const NodeId end = add_text_end(at);
  if (!reader_.end_before_newline()) return end;
  const NodeId newline = ast_.add_sequence({ast_.add_set(CharSet::single('\n')), add_text_end(at)});
  return ast_.add_choice({end, ast_.add_look(newline, false, false)});
}

}  // namespace constrain::regex
