#include "engine/json/array_rule.h"

#include <algorithm>
#include <optional>

namespace constrain::json {

void ArrayRule::prepare(const Lengths& lengths) {
  if (!tallied()) {
    max_ = max_items(lengths);
    return;
  }
  plan_ = std::make_unique<ItemPlan>(spec_, lengths);
  if (!plan_->possible(0, unpack(0).tallies, 1)) max_ = 0;
}

void ArrayRule::call_item(uint32_t index, Guard guard, Expansion& out) const {
  const uint32_t next = std::min<uint32_t>(index + 1, static_cast<uint32_t>(spec_.prefix.size()));
  for (const auto& choice : spec_.choices(index)) {
    out.call(choice.value, encode(Phase::after, 0, next), guard | Guard{choice.tallies} << kTalliesShift);
  }
}

Guard ArrayRule::space(uint32_t run, Guard level) const {
  const bool asks = whitespace_.indents() && run > 1;
  return asks ? Guard{WhitespaceRun::spaces(run)} << kSpacesShift | kSpace | level : 0;
}

Guard ArrayRule::indented(uint32_t run, Guard level) const {
  return whitespace_.indents() ? Guard{WhitespaceRun::spaces(run)} << kSpacesShift | kIndented | level : 0;
}

void ArrayRule::expand(Local state, const Lengths&, Expansion& out) {
  using Slot = Whitespace::Slot;
  const Guard count = tallied() || counts(max_) ? kItem : 0;
  const Guard comma = tallied() || max_ != kInfinite ? kComma : 0;
  const Guard close = tallied() || spec_.min > 1 ? kClose : 0;
  const bool may_be_empty = spec_.min == 0 && std::all_of(spec_.tallies.begin(), spec_.tallies.end(),
                                                          [](const ArraySpec::Tally& tally) { return tally.min == 0; });
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, index = static_cast<uint32_t>(state >> 32);
  switch (phase) {
    case Phase::start:
      return out.byte('[', encode(Phase::open));
    case Phase::open:
      if (max_ > 0) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run))
          out.byte(byte, encode(Phase::open, to), space(to, kInner));
        if (whitespace_.may_end(Slot::opening, run)) call_item(0, count | indented(run, kInner), out);
      } else if (!whitespace_.indents()) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) out.byte(byte, encode(Phase::open, to));
      }
      if (may_be_empty &&
          (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run))) {
        out.byte(']', encode(Phase::end));
      }
      return;
    case Phase::item:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run)) {
        out.byte(byte, encode(Phase::item, to, index), space(to, kInner));
      }
      if (whitespace_.may_end(Slot::item, run)) call_item(index, count | indented(run, kInner), out);
      return;
    case Phase::after:
      // Every way on from here must be possible: a comma needs room for an item, the end enough items.
      for (const auto [byte, to] : whitespace_.next(Slot::closing, 0))
        out.byte(byte, encode(Phase::closing, to), close);
      for (const auto [byte, to] : whitespace_.next(Slot::before, 0)) {
        out.byte(byte, encode(Phase::before_comma, to, index), comma);
      }
      if (whitespace_.may_end(Slot::closing, 0)) out.byte(']', encode(Phase::end), close);
      if (max_ > index) out.byte(',', encode(Phase::item, 0, index), comma);
      return;
    case Phase::before_comma:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run))
        out.byte(byte, encode(Phase::before_comma, to, index));
      return out.byte(',', encode(Phase::item, 0, index));
    case Phase::closing:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, run))
        out.byte(byte, encode(Phase::closing, to), space(to, 0));
      if (whitespace_.may_end(Slot::closing, run)) out.byte(']', encode(Phase::end), indented(run, 0));
      return;
    case Phase::end:
      out.accepting = true;
  }
}

bool ArrayRule::apply(Guard guard, uint8_t, Reg& reg, Registers& registers) const {
  if (guard & (kSpace | kIndented)) {
    const uint64_t spaces = guard >> kSpacesShift,
                   wanted = whitespace_.indent(registers.depth + (guard & kInner ? 1 : 0));
    if (guard & kSpace) return spaces <= wanted;
    if (spaces != wanted) return false;
  }
  if (tallied()) return apply_tallied(guard, reg, registers);
  if (guard & kComma) return reg < max_;
  if (guard & kClose) return reg >= spec_.min;
  if (guard & kItem && (max_ != kInfinite || reg < spec_.min)) ++reg;
  return true;
}

ArrayRule::Tallied ArrayRule::unpack(Reg reg) const {
  Tallied out;
  out.tallies.resize(spec_.tallies.size());
  if (!reg) return out;
  const auto words = Registers::words(reg);
  out.count = words[0];
  std::copy(words.begin() + 1, words.end(), out.tallies.begin());
  return out;
}

bool ArrayRule::apply_tallied(Guard guard, Reg& reg, Registers& registers) const {
  Tallied at = unpack(reg);
  if (guard & kComma) return plan_->possible(at.count, at.tallies, 1);
  if (guard & kClose) {
    for (size_t i = 0; i < at.tallies.size(); ++i) {
      if (at.tallies[i] < spec_.tallies[i].min) return false;
    }
    return at.count >= spec_.min;
  }
  if (!(guard & kItem)) return true;
  const auto choice = static_cast<uint32_t>(guard >> kTalliesShift & ((1u << ArraySpec::kMaxTallies) - 1));
  if (!plan_->add(choice, at.tallies)) return false;
  if (spec_.max != kInfinite || at.count < std::max<uint64_t>(spec_.min, spec_.prefix.size())) ++at.count;
  if (!plan_->possible(at.count, at.tallies, 0)) return false;
  std::vector<uint64_t> words{at.count};
  words.insert(words.end(), at.tallies.begin(), at.tallies.end());
  reg = registers.make(words);
  return true;
}

bool ArrayRule::describe(Local, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  if (!tallied()) {
    out.push_back(max_ == kInfinite ? horizon + 1 : std::min(max_ - reg, horizon + 1));
    out.push_back(spec_.min > reg ? std::min(spec_.min - reg, horizon + 1) : 0);
  } else if (reg) {
    const auto words = Registers::words(reg);
    out.insert(out.end(), words.begin(), words.end());
  }
  return true;
}

uint64_t ArrayRule::remaining_tallied(Phase phase, Reg reg, const Lengths& lengths) const {
  // Until the lengths are final each question needs a plan of its own.
  std::optional<ItemPlan> early;
  if (!plan_) early.emplace(spec_, lengths);
  const ItemPlan& plan = plan_ ? *plan_ : *early;
  const Tallied at = unpack(reg);
  const uint64_t line = whitespace_.indents() ? 1 : 0;
  // A plan has a comma for every item: the first item's stands in for the closing bracket.
  const auto open = [&] {
    const bool may_be_empty =
        spec_.min == 0 && std::all_of(spec_.tallies.begin(), spec_.tallies.end(),
                                      [](const ArraySpec::Tally& tally) { return tally.min == 0; });
    return may_be_empty ? 1 : add_lengths(plan.length(0, at.tallies, 1), line);
  };
  switch (phase) {
    case Phase::start:
      return add_lengths(open(), 1);
    case Phase::open:
      return open();
    case Phase::item:
      return add_lengths(plan.length(at.count, at.tallies, 1), line);
    case Phase::before_comma:
      return add_lengths(plan.length(at.count, at.tallies, 1), 1 + line);
    case Phase::after:
      return add_lengths(plan.length(at.count, at.tallies, 0), 1 + line);
    case Phase::closing:
      return 1;
    case Phase::end:
      return 0;
  }
  return kInfinite;
}

uint64_t ArrayRule::remaining(Local state, Reg reg, const Lengths& lengths) {
  const auto phase = static_cast<Phase>(state & 0xF);
  if (tallied()) return remaining_tallied(phase, reg, lengths);
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
  const auto open = [&](uint64_t items) {
    return add_lengths(items_length(0, items, lengths), items > 0 ? items + line : 1);
  };
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
      return add_lengths(items_length(index, index + std::max<uint64_t>(commas, 1), lengths),
                         std::max<uint64_t>(commas, 1) + 1);
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
  std::vector<RuleId> all;
  for (uint64_t index = 0; index <= spec_.prefix.size(); ++index) {
    for (const auto& choice : spec_.choices(index)) all.push_back(choice.value);
  }
  return all;
}

uint64_t ArrayRule::max_items(const Lengths& lengths) const {
  for (uint64_t i = 0; i <= spec_.prefix.size() && i < spec_.max; ++i) {
    if (lengths[spec_.choices(i).front().value] == kInfinite) return i;
  }
  return spec_.max;
}

uint64_t ArrayRule::items_length(uint64_t from, uint64_t to, const Lengths& lengths) const {
  uint64_t sum = 0;
  for (; from < to && from < spec_.prefix.size(); ++from)
    sum = add_lengths(sum, lengths[spec_.prefix[from].front().value]);
  if (from >= to) return sum;
  const uint64_t rest = lengths[spec_.rest.front().value];
  return rest == kInfinite || rest > kInfinite / (to - from) ? kInfinite : add_lengths(sum, rest * (to - from));
}

}  // namespace constrain::json
