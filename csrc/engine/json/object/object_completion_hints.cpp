#include "engine/json/object/object_completion_hints.h"

#include <algorithm>
#include <string_view>

#include "engine/grammar/parse_table.h"
#include "engine/grammar/rule_bounds.h"

namespace constrain::json {

uint64_t ObjectCompletionHints::max_growth(Local state, Reg reg, const Lengths& lengths) {
  // Lengths leave out indentation, so they say nothing about bytes.
  if (whitespace_.indents()) return kInfinite;
  const auto [phase, run, spelling] = ObjectPosition::of(state);
  if (phase != ObjectPosition::key || shape_.spellings[spelling].escape != kPlain) return kInfinite;
  const Members members = state_.unpack(reg);
  const Outlook outlook = state_.outlook(members);
  if (!state_.needs_no_other(members, outlook)) return kInfinite;
  uint64_t worst = 0;
  for (const uint32_t one : shape_.keys->state(shape_.spellings[spelling].content).classes) {
    uint64_t value = kInfinite;
    for (const auto& choice : shape_.other_choices(one)) {
      value = std::min(value, lengths[choice.value]);
    }
    const auto& keys = key_bounds(shape_.possible_others[one]);
    worst = std::max(worst, keys ? add_lengths(keys->rest, value) : kInfinite);
  }
  worst = add_lengths(worst, 2 + cost_.needed_length(members, outlook, lengths));
  if (worst == kInfinite) return kInfinite;
  return worst - std::min(worst, cost_.key_length(members, spelling, lengths));
}

/// Bounds the length of new keys of a class, whatever is typed of them; none if no bound is known.
const std::optional<WordBounds>& ObjectCompletionHints::key_bounds(uint32_t others) const {
  return shape_.spec.others[others].keys->bounds(RuleBounds::kItems);
}

/// Bytes of a member with its longest value.
uint64_t ObjectCompletionHints::longest_member(uint64_t key, std::span<const ObjectSpec::Choice> choices,
                                               const Lengths& lengths) {
  uint64_t value = 0;
  for (const auto& choice : choices) {
    if (lengths[choice.value] != kInfinite) value = std::max(value, lengths[choice.value]);
  }
  return add_lengths(key + kMemberBytes, value);
}

/// Computes the longest members of all properties, once the lengths are final.
void ObjectCompletionHints::measure_members(const Lengths& lengths) {
  longest_.assign(shape_.spec.properties.size(), 0);
  for (size_t name = 0; name < longest_.size(); ++name) {
    const auto& property = shape_.spec.properties[name];
    if (!shape_.possible[name]) continue;
    longest_[name] = longest_member(escaped_length(property.name), shape_.spec[property.choices], lengths);
  }
}

/// Most bytes that a member may need from anywhere in its key on, over the keys that some content of a key may become;
/// kInfinite if no bound is known.
uint64_t ObjectCompletionHints::longest_member(State content, const Members& members, const Lengths& lengths) {
  if (content == kDead) return 0;
  if (longest_.empty()) measure_members(lengths);
  const auto& key = shape_.keys->state(content);
  uint64_t most = 0;
  for (uint32_t at = key.low; at < key.high; ++at) {
    const uint32_t name = shape_.keys->sorted()[at];
    if (!has(members.seen, name)) most = std::max(most, longest_[name]);
  }
  for (const uint32_t one : key.classes) {
    const uint32_t others = shape_.possible_others[one];
    if (!key_bounds(others)) return kInfinite;
    most = std::max(most, longest_member(key_bounds(others)->rest, shape_.other_choices(one), lengths));
  }
  return most;
}

/// False if a member may make others necessary: those that it requires or, where members have an order, dearer ones.
bool ObjectCompletionHints::counts_alone() const {
  const ObjectSpec& spec = shape_.spec;
  return spec.dependents.empty() && !spec.duties && !(spec.in_order && spec.min > 0) && !whitespace_.indents();
}

CompletionHints::Outlay ObjectCompletionHints::max_outlay(Local state, Reg reg, uint64_t now, RuleBounds& bounds) {
  if (whitespace_.indents()) return {kInfinite, 0, true};
  const ObjectPosition position = ObjectPosition::of(state);
  const Members members = state_.unpack(reg);
  switch (position.phase) {
    case ObjectPosition::closing:
    case ObjectPosition::end:
      return {now, 0, false};
    case ObjectPosition::start:
    case ObjectPosition::after:
      return {go_on(now, members, bounds), 0, bounds.reach().whole_keys};
    case ObjectPosition::colon_before:
    case ObjectPosition::colon:
      return {shape_.spec.duties ? kInfinite : go_on(now, members, bounds), 0, true};
    case ObjectPosition::key:
      return begin_member(position.operand, now, members, bounds);
    default:
      return begin_member(0, now, members, bounds);
  }
}

/// Bounds an object that needs `now` bytes, and may go on with a comma: the token then holds at most a few bytes of the
/// next key.
uint64_t ObjectCompletionHints::go_on(uint64_t now, const Members& members, RuleBounds& bounds) {
  const Lengths& lengths = bounds.lengths();
  const uint64_t next = cost_.key_length(members, 0, lengths);
  uint64_t begun = 0;
  const ByteSet& first = bounds.reach().keys;
  for (int byte = first.next(0); byte >= 0; byte = first.next(byte + 1)) {
    const State content = shape_.keys->row(shape_.keys->start())[static_cast<uint8_t>(byte)];
    begun = std::max(begun, longest_member(content, members, lengths));
  }
  if (begun > 0 && !counts_alone()) return kInfinite;
  return add_lengths(std::max(next == kInfinite ? 0 : next, add_lengths(now, begun)), kMemberBytes);
}

/// Bounds an object in which a key is written.
CompletionHints::Outlay ObjectCompletionHints::begin_member(uint32_t spelling, uint64_t now, const Members& members,
                                                            RuleBounds& bounds) {
  if (!counts_alone()) return {kInfinite, 0, true};
  const Outlook outlook = state_.outlook(members);
  const Lengths& lengths = bounds.lengths();
  const uint64_t others =
      state_.needs_no_other(members, outlook) ? cost_.needed_length(members, outlook, lengths) : now;
  const State start = shape_.keys->start();
  uint64_t most = bounds.reach().whole_members ? longest_member(start, members, lengths) : 0;
  for (const State content : shape_.spellings[spelling].contents()) {
    most = std::max(most, longest_member(content, members, lengths));
  }
  return {add_lengths(others, kMemberBytes), most, true};
}

/// Counts each member that may be required at its longest value, and every other one as the longest member of all.
uint64_t ObjectCompletionHints::max_remaining(RuleBounds& bounds) {
  if (whitespace_.indents()) return kInfinite;
  const Lengths& lengths = bounds.lengths();
  std::vector<uint64_t> needed = shape_.required;
  for (const auto& dependent : shape_.spec.dependents) insert(needed, dependent.second);

  const uint64_t most = longest_member(shape_.keys->start(), state_.unpack(0), lengths);
  if (most == kInfinite) return kInfinite;
  uint64_t sum = kMemberBytes, all = 0, always = 0;
  for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
    if (!shape_.possible[name]) continue;
    if (has(needed, name)) sum = add_lengths(sum, longest_[name]);
    always += has(shape_.required, name);
    all = add_lengths(all, longest_[name]);
  }
  // Adds the member under way, one for each duty, and those for the least count beyond the required ones.
  const uint64_t beyond = 1 + static_cast<uint64_t>(std::popcount(shape_.spec.duties)) + shape_.spec.min -
                          std::min(shape_.spec.min, always);
  if (shape_.spec.min > always && !shape_.spec.dependents.empty()) sum = add_lengths(sum, all);
  return add_lengths(sum, multiply_lengths(beyond, most));
}

/// One new member makes values differ. If none may come, the bound is the longest text of all properties.
uint64_t ObjectCompletionHints::max_to_differ(RuleBounds& bounds) {
  if (whitespace_.indents()) return kInfinite;
  uint64_t fresh = kInfinite, all = shape_.possible_others.empty() ? 0 : kInfinite;
  for (const uint32_t others : shape_.possible_others) {
    if (shape_.spec.max != kInfinite || !key_bounds(others) || !key_bounds(others)->endless) continue;
    for (const auto& choice : shape_.spec[shape_.spec.others[others].choices]) {
      fresh = std::min(fresh, add_lengths(key_bounds(others)->rest + kMemberBytes, bounds.lengths()[choice.value]));
    }
  }
  if (fresh != kInfinite) return fresh;
  for (uint32_t name = 0; name < shape_.spec.properties.size() && all != kInfinite; ++name) {
    if (!shape_.possible[name]) continue;
    uint64_t value = 0;
    for (const auto& choice : shape_.choices(name)) {
      value = std::max(value, add_lengths(bounds.lengths()[choice.value], bounds.to_differ(choice.value)));
    }
    all = add_lengths(all, add_lengths(escaped_length(shape_.spec.properties[name].name) + kMemberBytes, value));
  }
  return all;
}

/// Before a member that is missing, or the end, it matters only which are missing.
Reg ObjectCompletionHints::ending(Local state, Reg reg, Registers& registers) const {
  const ObjectPosition::Phase phase = ObjectPosition::of(state).phase;
  const bool begins = phase == ObjectPosition::next || phase == ObjectPosition::comma_before;
  const bool ends = phase >= ObjectPosition::colon_before && phase <= ObjectPosition::after;
  return begins || ends ? state_.ending(reg, begins, registers) : reg;
}

/// Required names, else optional ones; no white space.
ByteSet ObjectCompletionHints::likely_bytes(Local state, Reg reg) {
  ByteSet bytes;
  for (const char byte : std::string_view(" \t\r\n")) bytes.add(static_cast<uint8_t>(byte));
  const ObjectPosition position = ObjectPosition::of(state);
  if (position.phase != ObjectPosition::key) return ~bytes;
  const KeySpelling& spelling = shape_.spellings[position.operand];
  if (spelling.escape != kPlain) return ByteSet::all();
  const auto words = state_.members_of(reg);
  const auto& key = shape_.keys->state(spelling.content);
  ByteSet required, open;
  for (uint32_t at = key.low; at < key.high; ++at) {
    if (!(state_.open_names(words)[at / 64] >> (at % 64) & 1)) continue;
    const ObjectSpec::Property& property = shape_.spec.properties[shape_.keys->sorted()[at]];
    const char next = leaving_byte(property.name, key.length);
    (property.required ? required : open).add(static_cast<uint8_t>(next));
  }
  return required == ByteSet() ? open : required;
}

/// Calls `offer` with the values of every member that the key under way may still name.
template <class Offer>
void ObjectCompletionHints::offer_keys(uint64_t spelling, const Members& members, const Outlook& outlook,
                                       const Offer& offer) {
  for (const State content : shape_.spellings[spelling].contents()) {
    const auto& key = shape_.keys->state(content);
    for (uint32_t at = key.low; at < key.high; ++at) {
      const uint32_t name = shape_.keys->sorted()[at];
      if (state_.may_be_name(members, outlook, name)) offer(shape_.choices(name));
    }
    for (const uint32_t one : key.classes) {
      const bool endless =
          shape_.keys->class_words(one, shape_.keys->class_state(content, one)) >= KeyAutomaton::kManyWords;
      if (endless && state_.may_be_other(members, outlook, one)) offer(shape_.other_choices(one));
    }
  }
}

uint64_t ObjectCompletionHints::count_values(Local state, Reg reg, const ParseTable& grammar) {
  const auto [phase, run, operand] = ObjectPosition::of(state);
  if (phase == ObjectPosition::closing || phase == ObjectPosition::end || shape_.spec.duties) return 1;
  const Members members = state_.unpack(reg);
  const Outlook outlook = state_.outlook(members);
  uint64_t most = 1;
  const auto offer = [&](std::span<const ObjectSpec::Choice> choices) {
    for (const auto& choice : choices) most = std::max(most, grammar.count_values_of(choice.value));
  };
  const bool valued = phase == ObjectPosition::colon_before || phase == ObjectPosition::colon;
  if (valued) offer(shape_.choices(operand));
  if (phase == ObjectPosition::key) offer_keys(operand, members, outlook, offer);
  // A key or value under way decides the next member; the others come after it.
  const bool between = phase != ObjectPosition::key && !valued;
  for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
    const bool comes = has(outlook.needed, name) || (between && state_.may_be_name(members, outlook, name));
    if (comes && !has(members.seen, name)) offer(shape_.choices(name));
  }
  const bool room = members.count + outlook.missing + 2 <= shape_.spec.max;
  return room && outlook.others > 1 ? std::max(most, outlook.others - 1) : most;
}

}  // namespace constrain::json
