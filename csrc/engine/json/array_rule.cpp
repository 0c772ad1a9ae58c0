#include "engine/json/array_rule.h"

#include <algorithm>
#include <array>

#include "engine/grammar/parse_table.h"

namespace constrain::json {

ArrayRule::ArrayRule(ArraySpec spec, Whitespace whitespace, bool keys_in_order)
    : spec_(std::move(spec)), whitespace_(whitespace) {
  if (!spec_.distinct) return;
  const PlainStyle style{.sorted = !keys_in_order, .spaced = whitespace_.indents()};
  distinct_ = std::make_unique<DistinctItems>(spec_, style);
}

void ArrayRule::prepare(const ParseTable& grammar, const Lengths& lengths) {
  if (!tallied()) {
    max_ = max_items(lengths);
    return;
  }
  if (distinct_) distinct_->prepare(grammar, lengths);
  plan_ = std::make_unique<ItemPlan>(spec_, lengths, 1 + line_length());
  planned_for_ = &lengths;
  if (!plan_->possible(0, unpack(0).tallies, 1)) max_ = 0;
}

bool ArrayRule::refine(const ParseTable& grammar, const Lengths& lengths) {
  if (!distinct_) return false;
  prepare(grammar, lengths);
  return distinct_->refine();
}

void ArrayRule::call_item(uint32_t index, Guard guard, Expansion& out) const {
  const uint32_t next = std::min<uint32_t>(index + 1, static_cast<uint32_t>(spec_.prefix.size()));
  for (const auto& choice : spec_.choices(index)) {
    const Guard counted = guard | Guard{choice.tallies} << kTalliesShift;
    if (!distinct_) {
      out.call(choice.value, encode(Phase::after, 0, next), counted);
      continue;
    }
    // Values begin after white space.
    out.range(' ' + 1, 255, encode(Phase::inside, 0, next), counted);
  }
}

bool ArrayRule::may_be_empty() const {
  return spec_.min == 0 && std::all_of(spec_.tallies.begin(), spec_.tallies.end(),
                                       [](const ArraySpec::Tally& tally) { return tally.min == 0; });
}

uint64_t ArrayRule::begun_line(Local state) const {
  return whitespace_.indents() && static_cast<uint32_t>(state) >> 4 != WhitespaceRun::kStart ? 1 : 0;
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
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, index = static_cast<uint32_t>(state >> 32);
  const auto over = whitespace_.over(run);
  switch (phase) {
    case Phase::start:
      return out.byte('[', encode(Phase::open));
    case Phase::open:
      if (max_ > 0) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run))
          out.byte(byte, encode(Phase::open, to), space(to, kInner));
        if (over) return out.be_like(encode(Phase::open, *over), run);
        if (whitespace_.may_end(Slot::opening, run)) call_item(0, count | indented(run, kInner), out);
      } else if (!whitespace_.indents()) {
        for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) out.byte(byte, encode(Phase::open, to));
      }
      if (may_be_empty() &&
          (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run))) {
        out.byte(']', encode(Phase::end));
      }
      return;
    case Phase::item:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run)) {
        out.byte(byte, encode(Phase::item, to, index), space(to, kInner));
      }
      if (over) return out.be_like(encode(Phase::item, *over, index), run);
      if (whitespace_.may_end(Slot::item, run)) call_item(index, count | indented(run, kInner), out);
      return;
    case Phase::inside:
      out.range(0, 255, state, kInside);
      [[fallthrough]];
    case Phase::after:
      // Guards ensure that every edge is viable: a comma needs room for an item, the end enough items.
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
      if (over) return out.be_like(encode(Phase::closing, *over), run);
      if (whitespace_.may_end(Slot::closing, run)) out.byte(']', encode(Phase::end), indented(run, 0));
      return;
    case Phase::end:
      out.accepting = true;
  }
}

bool ArrayRule::apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
  if (guard & (kSpace | kIndented)) {
    const uint64_t spaces = guard >> kSpacesShift,
                   wanted = whitespace_.indent(registers.depth + (guard & kInner ? 1 : 0));
    if (guard & kSpace) return spaces <= wanted;
    if (spaces != wanted) return false;
  }
  if (tallied()) return apply_tallied(guard, byte, reg, registers);
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
  out.count = words[0], out.items = words[1];
  std::copy(words.begin() + 2, words.end(), out.tallies.begin());
  return out;
}

Reg ArrayRule::pack(const Tallied& at, Registers& registers) const {
  std::array<uint64_t, 2 + ArraySpec::kMaxTallies> words{at.count, at.items};
  std::ranges::copy(at.tallies, words.begin() + 2);
  return registers.make(std::span<const uint64_t>(words).first(2 + at.tallies.size()));
}

std::optional<ArrayRule::Tallied> ArrayRule::with_item(Tallied at, uint32_t tallies) const {
  if (!plan_->add(tallies, at.tallies)) return std::nullopt;
  if (spec_.max != kInfinite || at.count < std::max<uint64_t>(spec_.min, spec_.prefix.size())) ++at.count;
  if (!plan_->possible(at.count, at.tallies, 0)) return std::nullopt;
  return at;
}

bool ArrayRule::may_have_another(const Tallied& at, Registers& registers) const {
  if (!distinct_) return plan_->possible(at.count, at.tallies, 1);
  const auto& choices = spec_.choices(at.count);
  return std::any_of(choices.begin(), choices.end(), [&](const ArraySpec::Choice& choice) {
    return with_item(at, choice.tallies) && distinct_->another(at.items, choice.value, registers);
  });
}

bool ArrayRule::may_close(const Tallied& at) const {
  for (size_t i = 0; i < at.tallies.size(); ++i) {
    if (at.tallies[i] < spec_.tallies[i].min) return false;
  }
  return at.count >= spec_.min;
}

bool ArrayRule::apply_tallied(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
  Tallied at = unpack(reg);
  if (guard & kItem) {
    const auto tallies = static_cast<uint32_t>(guard >> kTalliesShift & ((1u << ArraySpec::kMaxTallies) - 1));
    auto after = with_item(at, tallies);
    if (!after || (distinct_ && !begin_item(*after, at.count, tallies, byte, registers))) return false;
    reg = pack(*after, registers);
    return true;
  }
  if (guard & kInside) {
    if (!distinct_->step(at.items, byte, registers)) return false;
    reg = pack(at, registers);
    return true;
  }
  if (!(guard & (kComma | kClose))) return true;
  if (distinct_ && !distinct_->may_end(at.items, registers)) return false;
  if (guard & kClose) return may_close(at);
  if (!distinct_) return may_have_another(at, registers);
  if (!distinct_->may_go_on(at.items, registers)) return false;
  at.items = distinct_->end(at.items, registers);
  if (!may_have_another(at, registers)) return false;
  reg = pack(at, registers);
  return true;
}

bool ArrayRule::describe(Local, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  if (!tallied()) {
    out.push_back(max_ == kInfinite ? horizon + 1 : std::min(max_ - reg, horizon + 1));
    out.push_back(spec_.min > reg ? std::min(spec_.min - reg, horizon + 1) : 0);
  } else if (reg) {
    const Tallied at = unpack(reg);
    out.push_back(at.count);
    out.insert(out.end(), at.tallies.begin(), at.tallies.end());
    return !distinct_ || distinct_->describe(at.items, out);
  }
  return true;
}

bool ArrayRule::begin_item(Tallied& at, uint64_t index, uint32_t tallies, uint8_t byte, Registers& registers) const {
  const auto& choices = spec_.choices(index);
  const auto choice = std::find_if(choices.begin(), choices.end(), [&](auto& one) { return one.tallies == tallies; });
  return distinct_->begin(at.items, choice->value, byte, registers);
}

uint64_t ArrayRule::max_needed(const Tallied& at, uint64_t more) const {
  const auto missing = [](uint64_t wanted, uint64_t have) { return wanted - std::min(wanted, have); };
  uint64_t needed = missing(spec_.min, at.count);
  if (!spec_.tallies.empty()) needed += missing(spec_.prefix.size(), at.count);
  for (size_t i = 0; i < at.tallies.size(); ++i) needed += missing(spec_.tallies[i].min, at.tallies[i]);
  return std::max(needed, more);
}

uint64_t ArrayRule::further_items(const Tallied& at, uint64_t more, const Lengths& lengths) const {
  const auto planned = [&](const ItemPlan& plan) { return plan.length(at.count, at.tallies, more); };
  // While lengths are being computed, for the first time or once more, each question needs a plan of its own.
  if (!distinct_) return &lengths == planned_for_ ? planned(*plan_) : planned({spec_, lengths, 1 + line_length()});
  const uint64_t needed = max_needed(at, more);
  if (distinct_->alike()) {
    return add_lengths(distinct_->length_with(at.items, needed, lengths), needed * (1 + line_length()));
  }
  if (!distinct_->possible()) return kInfinite;
  const Lengths others = distinct_->lengths_of_others(at.items, needed, lengths);
  return add_lengths(distinct_->length_with(at.items, 0, lengths), planned({spec_, others, 1 + line_length()}));
}

uint64_t ArrayRule::remaining_tallied(Local state, Reg reg, const Lengths& lengths) const {
  const Tallied at = unpack(reg);
  const uint64_t line = line_length(), begun = begun_line(state);
  const auto further = [&](uint64_t more) { return further_items(at, more, lengths); };
  // A plan counts a comma with every item; that of the first item pays for the closing bracket.
  switch (static_cast<Phase>(state & 0xF)) {
    case Phase::start:
      return may_be_empty() ? 2 : add_lengths(further(1), 1 + line);
    case Phase::open:
      return may_be_empty() && !begun ? 1 : add_lengths(further(1), line) - begun;
    case Phase::item:
      return add_lengths(further(1), line) - begun;
    case Phase::inside:
      return add_lengths(further(0), 1 + line);
    case Phase::before_comma:
      return add_lengths(further(1), 1);
    case Phase::after:
      return add_lengths(further(0), 1 + line);
    case Phase::closing:
      return 1;
    case Phase::end:
      return 0;
  }
  return kInfinite;
}

uint64_t ArrayRule::remaining(Local state, Reg reg, const Lengths& lengths) {
  return add_lengths(remaining_after_run(state, reg, lengths), whitespace_.missing(static_cast<uint32_t>(state) >> 4));
}

/// Ignores bytes that the white space under way still needs.
uint64_t ArrayRule::remaining_after_run(Local state, Reg reg, const Lengths& lengths) const {
  const auto phase = static_cast<Phase>(state & 0xF);
  if (tallied()) return remaining_tallied(state, reg, lengths);
  const uint64_t index = state >> 32;
  const uint64_t max = max_items(lengths);
  if (spec_.min > max) return kInfinite;
  // The register counts only if bounds need it; else the index is enough.
  const bool some = phase == Phase::item || phase == Phase::after || phase == Phase::before_comma;
  const uint64_t done = std::max<uint64_t>(counts(max) ? reg : index, some ? 1 : 0);
  const uint64_t until = std::max(spec_.min, done);
  const uint64_t commas = until > done ? until - done : 0;
  const uint64_t line = line_length(), begun = begun_line(state);
  const auto open = [&](uint64_t items) {
    return add_lengths(items_length(0, items, lengths), items > 0 ? items * (1 + line) + line : 1);
  };
  switch (phase) {
    case Phase::start:
      return add_lengths(open(spec_.min), 1);
    case Phase::open:
      return begun ? open(std::max<uint64_t>(spec_.min, 1)) - begun : open(spec_.min);
    case Phase::item: {
      const uint64_t items = std::max(spec_.min, done + 1) - done;
      return add_lengths(items_length(index, index + items, lengths), items * (1 + line) + line - begun);
    }
    case Phase::before_comma: {
      const uint64_t items = std::max<uint64_t>(commas, 1);
      return add_lengths(items_length(index, index + items, lengths), items + 1);
    }
    case Phase::after:
      return add_lengths(items_length(index, index + commas, lengths), (commas + 1) * (1 + line));
    case Phase::closing:
      return 1;
    case Phase::inside:
    case Phase::end:
      return 0;
  }
  return kInfinite;
}

uint64_t ArrayRule::max_remaining(RuleBounds& bounds) {
  const Lengths& lengths = bounds.lengths();
  if (whitespace_.indents()) return kInfinite;
  if (distinct_) return max_distinct(bounds);
  const uint64_t longest = longest_item(lengths);
  // A token may begin one item that was not needed.
  const uint64_t items = tallied() ? max_needed(unpack(0), 1) : spec_.min;
  const uint64_t sum = tallied() ? multiply_lengths(items, longest) : items_length(0, items, lengths);
  return add_lengths(sum, add_lengths(longest, add_lengths(items, kBrackets)));
}

CompletionHints::Outlay ArrayRule::max_outlay(Local, Reg, uint64_t now, RuleBounds& bounds) {
  const bool known = !whitespace_.indents() && !tallied();
  return {known ? add_lengths(now, kBrackets) : kInfinite, longest_item(bounds.lengths()), true};
}

/// Bytes of the longest shortest item.
uint64_t ArrayRule::longest_item(const Lengths& lengths) const {
  uint64_t longest = 0;
  for (const RuleId item : callees()) longest = std::max(longest, lengths[item] == kInfinite ? 0 : lengths[item]);
  return longest;
}

/// Assumes that every item, including the one under way, must differ from all others.
uint64_t ArrayRule::max_distinct(RuleBounds& bounds) const {
  if (!distinct_->alike()) return kInfinite;
  const RuleId item = spec_.rest.front().value;
  if (bounds.lengths()[item] == kInfinite) return kBrackets;
  const uint64_t differing = bounds.to_differ(item);
  const uint64_t each = add_lengths(bounds.lengths()[item], add_lengths(differing, 1));
  return add_lengths(multiply_lengths(add_lengths(spec_.min, 1), each), add_lengths(differing, kBrackets));
}

/// If items have two values, kItems of them make more arrays than any array has items. If fewer are allowed, the bound
/// covers all of them.
uint64_t ArrayRule::max_to_differ(RuleBounds& bounds) {
  constexpr uint64_t kItems = 40;
  static_assert(uint64_t{1} << kItems > RuleBounds::kItems);
  if (whitespace_.indents() || tallied()) return kInfinite;
  uint64_t longest = 0;
  for (const RuleId item : callees()) {
    if (bounds.lengths()[item] == kInfinite) continue;
    longest = std::max(longest, add_lengths(bounds.lengths()[item], bounds.to_differ(item)));
  }
  const bool many =
      bounds.lengths()[spec_.rest.front().value] != kInfinite && bounds.count_values(spec_.rest.front().value) > 1;
  const uint64_t items = many ? spec_.prefix.size() + spec_.min + kItems + 1 : max_;
  return add_lengths(multiply_lengths(items, add_lengths(longest, 1)), kBrackets);
}

uint64_t ArrayRule::max_growth(Local state, Reg reg, const Lengths&) {
  if (static_cast<Phase>(state & 0xF) != Phase::inside || whitespace_.indents()) return kInfinite;
  const Tallied at = unpack(reg);
  return is_last(at) ? distinct_->max_growth(at.items) : kInfinite;
}

/// Any byte where the item under way may be over, because then the array goes on.
ByteSet ArrayRule::likely_bytes(Local state, Reg reg) {
  if (static_cast<Phase>(state & 0xF) != Phase::inside) return ByteSet::all();
  const Reg items = unpack(reg).items;
  return distinct_->is_over(items) ? ByteSet::all() : distinct_->likely_bytes(items);
}

ByteSet ArrayRule::known_bytes(Local state, Reg reg) {
  return static_cast<Phase>(state & 0xF) == Phase::inside ? distinct_->known_bytes(unpack(reg).items) : ByteSet();
}

std::optional<CompletionHints::Call> ArrayRule::as_call(Local state, Reg reg, Registers& registers) const {
  if (static_cast<Phase>(state & 0xF) != Phase::inside) return std::nullopt;
  Tallied at = unpack(reg);
  const Configuration* item = is_last(at) ? distinct_->release(at.items, registers) : nullptr;
  if (!item) return std::nullopt;
  return Call{item, encode(Phase::after, 0, static_cast<uint32_t>(state >> 32)), pack(at, registers)};
}

Reg ArrayRule::ending(Local state, Reg reg, Registers& registers) const {
  if (static_cast<Phase>(state & 0xF) != Phase::inside) return reg;
  Tallied at = unpack(reg);
  return is_last(at) && distinct_->forget(at.items, registers) ? pack(at, registers) : reg;
}

WildcardRegion ArrayRule::wildcard_region(Local state, Reg reg) {
  return static_cast<Phase>(state & 0xF) == Phase::inside ? distinct_->wildcard_region(unpack(reg).items)
                                                          : WildcardRegion();
}

uint64_t ArrayRule::count_values(Local state, Reg reg, const ParseTable& grammar) {
  const auto phase = static_cast<Phase>(state & 0xF);
  if (phase == Phase::closing || phase == Phase::end || !spec_.tallies.empty()) return 1;
  const uint64_t item = grammar.count_values_of(spec_.choices(state >> 32).front().value);
  if (distinct_) return spec_.max == kInfinite && spec_.prefix.empty() && item == kManyValues ? item : 1;
  // Unbounded arrays differ in their length.
  if (max_ == kInfinite) return kManyValues;
  const bool more = phase == Phase::after ? reg < max_ : max_ > 0;
  return more ? std::max<uint64_t>(item, 1) : 1;
}

void ArrayRule::add_callees(std::vector<RuleId>& out) const {
  for (uint64_t index = 0; index <= spec_.prefix.size(); ++index) {
    for (const auto& choice : spec_.choices(index)) out.push_back(choice.value);
  }
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
  return add_lengths(sum, multiply_lengths(to - from, lengths[spec_.rest.front().value]));
}

}  // namespace constrain::json
