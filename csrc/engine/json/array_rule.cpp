#include "engine/json/array_rule.h"

#include <algorithm>

namespace constrain::json {

Guard ArrayRule::space(uint32_t run, Guard level) const {
  const bool asks = whitespace_.indents() && run > 1;
  return asks ? Guard{WhitespaceRun::spaces(run)} << kFlagBits | kSpace | level : 0;
}

Guard ArrayRule::indented(uint32_t run, Guard level) const {
  return whitespace_.indents() ? Guard{WhitespaceRun::spaces(run)} << kFlagBits | kIndented | level : 0;
}

void ArrayRule::expand(Local state, const Lengths&, Expansion& out) {
  using Slot = Whitespace::Slot;
  const Guard count = counts(max_) ? kItem : 0, comma = max_ != kInfinite ? kComma : 0, close = spec_.min > 1 ? kClose : 0;
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, index = static_cast<uint32_t>(state >> 32);
  const uint32_t next = std::min<uint32_t>(index + 1, static_cast<uint32_t>(spec_.prefix.size()));
  switch (phase) {
    case Phase::start:
      return out.byte('[', encode(Phase::open));
    case Phase::open:
      if (max_ > 0) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) out.byte(byte, encode(Phase::open, to), space(to, kInner));
        if (whitespace_.may_end(Slot::opening, run)) out.call(item(0), encode(Phase::after, 0, next), count | indented(run, kInner));
      } else if (!whitespace_.indents()) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) out.byte(byte, encode(Phase::open, to));
      }
      if (spec_.min == 0 && (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run))) {
        out.byte(']', encode(Phase::end));
      }
      return;
    case Phase::item:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run)) {
        out.byte(byte, encode(Phase::item, to, index), space(to, kInner));
      }
      if (whitespace_.may_end(Slot::item, run)) out.call(item(index), encode(Phase::after, 0, next), count | indented(run, kInner));
      return;
    case Phase::after:
      // Every way on from here must be possible: a comma needs room for an item, the end enough items.
      for (const auto [byte, to] : whitespace_.next(Slot::closing, 0)) out.byte(byte, encode(Phase::closing, to), close);
      for (const auto [byte, to] : whitespace_.next(Slot::before, 0)) {
        out.byte(byte, encode(Phase::before_comma, to, index), comma);
      }
      if (whitespace_.may_end(Slot::closing, 0)) out.byte(']', encode(Phase::end), close);
      if (max_ > index) out.byte(',', encode(Phase::item, 0, index), comma);
      return;
    case Phase::before_comma:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run)) out.byte(byte, encode(Phase::before_comma, to, index));
      return out.byte(',', encode(Phase::item, 0, index));
    case Phase::closing:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, run)) out.byte(byte, encode(Phase::closing, to), space(to, 0));
      if (whitespace_.may_end(Slot::closing, run)) out.byte(']', encode(Phase::end), indented(run, 0));
      return;
    case Phase::end:
      out.accepting = true;
  }
}

bool ArrayRule::apply(Guard guard, uint8_t, Reg& reg, Registers& registers) const {
  if (guard & (kSpace | kIndented)) {
    const uint64_t spaces = guard >> kFlagBits, wanted = whitespace_.indent(registers.depth + (guard & kInner ? 1 : 0));
    if (guard & kSpace) return spaces <= wanted;
    if (spaces != wanted) return false;
  }
  if (guard & kComma) return reg < max_;
  if (guard & kClose) return reg >= spec_.min;
  if (guard & kItem && (max_ != kInfinite || reg < spec_.min)) ++reg;
  return true;
}

uint64_t ArrayRule::remaining(Local state, Reg reg, const Lengths& lengths) {
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint64_t index = state >> 32;
  const uint64_t max = max_items(lengths);
  if (spec_.min > max) return kInfinite;
  // The register counts only where it must; else the index tells all that matters.
  const bool some = phase == Phase::item || phase == Phase::after || phase == Phase::before_comma;
  const uint64_t done = std::max<uint64_t>(counts(max) ? reg : index, some ? 1 : 0);
  const uint64_t until = std::max(spec_.min, done);
  const uint64_t commas = until > done ? until - done : 0;
  // An indented bracket that closes has a line of its own.
  const uint64_t line = whitespace_.indents() ? 1 : 0;
  const auto open = [&](uint64_t items) { return add_lengths(items_length(0, items, lengths), items > 0 ? items + line : 1); };
  switch (phase) {
    case Phase::start:
      return add_lengths(open(spec_.min), 1);
    case Phase::open:
      return open(line && static_cast<uint32_t>(state) >> 4 > 0 ? std::max<uint64_t>(spec_.min, 1) : spec_.min);
    case Phase::item: {
      const uint64_t last = std::max(spec_.min, done + 1);
      return add_lengths(items_length(index, index + last - done, lengths), last - done + line);
    }
    case Phase::before_comma:
      return add_lengths(items_length(index, index + std::max<uint64_t>(commas, 1), lengths), std::max<uint64_t>(commas, 1) + 1);
    case Phase::after:
      return add_lengths(items_length(index, index + commas, lengths), commas + 1 + line);
    case Phase::closing:
      return 1;
    case Phase::end:
      return 0;
  }
  return kInfinite;
}

std::vector<RuleId> ArrayRule::callees() const {
  std::vector<RuleId> all = spec_.prefix;
  all.push_back(spec_.rest);
  return all;
}

uint64_t ArrayRule::max_items(const Lengths& lengths) const {
  uint64_t max = spec_.max;
  for (uint64_t i = 0; i <= spec_.prefix.size() && i < max; ++i) {
    if (lengths[item(i)] == kInfinite) return i;
  }
  return max;
}

uint64_t ArrayRule::items_length(uint64_t from, uint64_t to, const Lengths& lengths) const {
  uint64_t sum = 0;
  for (; from < to && from < spec_.prefix.size(); ++from) sum = add_lengths(sum, lengths[spec_.prefix[from]]);
  if (from >= to) return sum;
  const uint64_t rest = lengths[spec_.rest];
  return rest == kInfinite || rest > kInfinite / (to - from) ? kInfinite : add_lengths(sum, rest * (to - from));
}

}  // namespace constrain::json
