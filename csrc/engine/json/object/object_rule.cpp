#include "engine/json/object/object_rule.h"

#include <algorithm>
#include <string_view>

namespace constrain::json {

namespace {

using Slot = Whitespace::Slot;

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

ObjectRule::ObjectRule(ObjectSpec spec, Whitespace whitespace)
    : whitespace_(whitespace),
      shape_(std::move(spec)),
      state_(shape_, *this),
      guards_(shape_, state_, whitespace_),
      cost_(shape_, state_, whitespace_),
      mask_hints_(shape_, state_, whitespace_),
      completion_hints_(shape_, state_, cost_, whitespace_) {}

void ObjectRule::add_callees(std::vector<RuleId>& out) const {
  for (const auto& choice : shape_.spec.values) out.push_back(choice.value);
}

void ObjectRule::prepare(const ParseTable& grammar, const Lengths& lengths) {
  shape_.prepare(grammar, lengths);
  cost_.prepare();
  shape_.wanted_keys = cost_.find_wanted_keys(lengths);
  state_.prepare();
}

void ObjectRule::expand(Local state, const Lengths&, Expansion& out) {
  using P = ObjectPosition;
  const auto [phase, run, operand] = P::of(state);
  switch (phase) {
    case P::start:
      return out.byte('{', P::encode(P::open));
    case P::open:
      return expand_open(run, out);
    case P::next:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run)) {
        out.byte(byte, P::encode(P::next, to), guards_.space(to, true));
      }
      if (const auto over = whitespace_.over(run)) return out.be_like(P::encode(P::next, *over), run);
      return start_key(Slot::item, run, out);
    case P::key:
      return expand_key(operand, out);
    case P::colon_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run)) {
        out.byte(byte, P::encode(P::colon_before, to, operand));
      }
      return out.byte(':', P::encode(P::colon, 0, operand));
    case P::colon:
      return expand_value(run, operand, out);
    case P::after:
      return expand_after(out);
    case P::comma_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run)) {
        out.byte(byte, P::encode(P::comma_before, to));
      }
      return out.byte(',', P::encode(P::next));
    case P::closing:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, run)) {
        out.byte(byte, P::encode(P::closing, to), guards_.space(to, false));
      }
      if (const auto over = whitespace_.over(run)) return out.be_like(P::encode(P::closing, *over), run);
      if (whitespace_.may_end(Slot::closing, run)) {
        out.byte('}', P::encode(P::end), guards_.line(Test::last_line, Test::none, run));
      }
      return;
    case P::end:
      out.accepting = true;
  }
}

void ObjectRule::expand_open(uint32_t run, Expansion& out) const {
  using P = ObjectPosition;
  for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) {
    const bool starts_line = whitespace_.indents() && run == 0;
    out.byte(byte, P::encode(P::open, to), starts_line ? guards_.encode(Test::member) : guards_.space(to, true));
  }
  if (const auto over = whitespace_.over(run)) return out.be_like(P::encode(P::open, *over), run);
  start_key(Slot::opening, run, out);
  if (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run)) {
    out.byte('}', P::encode(P::end), guards_.encode(Test::close));
  }
}

void ObjectRule::start_key(Slot slot, uint32_t run, Expansion& out) const {
  if (!whitespace_.may_end(slot, run)) return;
  out.byte('"', ObjectPosition::encode(ObjectPosition::key), guards_.line(Test::next_line, Test::key, run));
}

void ObjectRule::expand_value(uint32_t run, uint32_t label, Expansion& out) const {
  using P = ObjectPosition;
  for (const auto [byte, to] : whitespace_.next(Slot::value, run)) out.byte(byte, P::encode(P::colon, to, label));
  if (const auto over = whitespace_.over(run)) return out.be_like(P::encode(P::colon, *over, label), run);
  if (!whitespace_.may_end(Slot::value, run)) return;
  for (const auto& choice : shape_.choices(label)) {
    out.call(choice.value, P::encode(P::after), shape_.spec.duties ? guards_.encode(Test::value, choice.duties) : 0);
  }
}

void ObjectRule::expand_after(Expansion& out) const {
  using P = ObjectPosition;
  for (const auto [byte, to] : whitespace_.next(Slot::closing, 0)) {
    out.byte(byte, P::encode(P::closing, to), guards_.encode(Test::close));
  }
  for (const auto [byte, to] : whitespace_.next(Slot::before, 0)) {
    out.byte(byte, P::encode(P::comma_before, to), guards_.encode(Test::member));
  }
  if (whitespace_.may_end(Slot::closing, 0)) out.byte('}', P::encode(P::end), guards_.encode(Test::close));
  out.byte(',', P::encode(P::next), guards_.encode(Test::member));
}

/// Adds the edge to a spelling, if that can become a key.
void ObjectRule::go(int first, int last, State to, uint32_t escape, Test test, Expansion& out) {
  if (to == kDead) return;
  const uint32_t next = shape_.spellings.intern(to, escape);
  if (shape_.spellings[next].contents().empty()) return;
  out.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last),
            ObjectPosition::encode(ObjectPosition::key, 0, next), guards_.encode(test, next));
}

void ObjectRule::expand_key(uint32_t id, Expansion& out) {
  const KeySpelling& at = shape_.spellings[id];
  if (at.escape == kPlain) return expand_plain_key(at, out);
  const StateRow& row = shape_.keys->row(at.content);
  switch (at.escape) {
    case kBackslash:
      for (const char letter : kShortLetters) {
        go(letter, letter, row[short_escape(static_cast<uint8_t>(letter))], kPlain, Test::key_short, out);
      }
      return go('u', 'u', at.content, kU, Test::key, out);
    case kU:
      return go('0', '0', at.content, kU0, Test::key, out);
    case kU0:
      return go('0', '0', at.content, kU00, Test::key, out);
    case kU00:
      go('0', '0', at.content, kU000, Test::key, out);
      return go('1', '1', at.content, kU001, Test::key, out);
    default: {
      const bool high = at.escape == kU001;
      for (uint8_t digit = 0; digit < 16; ++digit) {
        const uint8_t byte = high ? 0x10 | digit : digit;
        if (has_short_escape(byte)) continue;
        const Test test = high ? Test::key_high : Test::key_low;
        const int lower = kHexDigits[digit];
        go(lower, lower, row[byte], kPlain, test, out);
        if (digit > 9) go(lower - 'a' + 'A', lower - 'a' + 'A', row[byte], kPlain, test, out);
      }
    }
  }
}

void ObjectRule::expand_plain_key(const KeySpelling& at, Expansion& out) {
  using P = ObjectPosition;
  const auto& key = shape_.keys->state(at.content);
  const State base = shape_.keys->nameless(at.content);
  bool escaped = false;
  const auto raw = [&](int first, int last, State to) {
    const bool plain = first == last && first >= 0x20 && first != '"' && first != '\\';
    if (plain) return go(first, last, to, kPlain, Test::key_raw, out);
    escaped |= to != kDead;
    for (const auto& [begin, end] : {std::pair(0x20, '"' - 1), {'"' + 1, '\\' - 1}, {'\\' + 1, 255}}) {
      const int from = std::max(first, begin), until = std::min(last, end);
      if (from <= until) go(from, until, to, kPlain, Test::key_raw, out);
    }
  };
  if (base == kDead && !key.classes.empty()) {
    for_each_range(shape_.keys->row(at.content), raw);
  } else {
    shape_.keys->for_each_name(at.content, [&](uint8_t byte, State to) { raw(byte, byte, to); });
  }
  if (base != kDead) out.be_like(P::encode(P::key, 0, shape_.spellings.intern(base, kPlain)));
  if (escaped) go('\\', '\\', shape_.spellings.with_same_escapes(at.content), kBackslash, Test::key, out);
  if (!key.name && (!key.key_class || base != kDead)) return;
  const auto names = static_cast<uint32_t>(shape_.spec.properties.size());
  const uint32_t label = key.name ? *key.name : names + *key.key_class;
  const uint32_t alike = shape_.alike(label);  // so that members with the same values share their states
  out.byte('"', P::encode(P::colon_before, 0, alike), guards_.encode(Test::key_end, label));
}

}  // namespace constrain::json
