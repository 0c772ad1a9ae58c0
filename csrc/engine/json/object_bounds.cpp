#include <algorithm>
#include <string_view>

#include "engine/grammar/parse_table.h"
#include "engine/json/object_keys.h"
#include "engine/json/object_rule.h"

namespace constrain::json {

// How much longer the end of an object may get, whatever is typed of it, and where it is likely to be near.

uint64_t ObjectRule::growth(Local state, Reg reg, const Lengths& lengths) {
  // The spaces of lines are no part of lengths, so that nothing follows for the bytes.
  if (whitespace_.indents()) return kInfinite;
  const uint32_t spelling = static_cast<uint32_t>(state >> 32);
  if (static_cast<Phase>(state & 0xF) != Phase::key || spellings_[spelling].escape != kPlain) return kInfinite;
  const Members members = unpack(reg);
  const Outlook outlook = this->outlook(members);
  if (!needs_no_other(members, outlook)) return kInfinite;
  uint64_t worst = 0;
  for (const uint32_t one : keys_->state(spellings_[spelling].content).classes) {
    uint64_t value = kInfinite;
    for (const auto& choice : spec_.others[possible_others_[one]].choices) {
      value = std::min(value, lengths[choice.value]);
    }
    const auto& keys = key_bounds(possible_others_[one]);
    worst = std::max(worst, keys ? add_lengths(keys->rest, value) : kInfinite);
  }
  worst = add_lengths(worst, 2 + needed_length(members, outlook, lengths));
  if (worst == kInfinite) return kInfinite;
  return worst - std::min(worst, key_length(members, spelling, lengths));
}

/// How long new keys of a class are at most, whatever is typed of them; none where that is not known.
const std::optional<WordBounds>& ObjectRule::key_bounds(uint32_t others) {
  constexpr size_t kMaxStates = 8192;
  const auto [known, added] = key_bounds_.try_emplace(others);
  if (added) {
    known->second = word_bounds(*spec_.others[others].keys, RuleBounds::kItems, kMaxStates,
                                [](uint8_t byte) { return spelled_length({reinterpret_cast<const char*>(&byte), 1}); });
  }
  return known->second;
}

/// The members that may have to be there are counted with the longest way to have them, and each that is there for
/// another reason with the longest member of all.
uint64_t ObjectRule::most_remaining(RuleBounds& bounds) {
  if (whitespace_.indents()) return kInfinite;
  const Lengths& lengths = bounds.lengths();
  const auto longest = [&](uint64_t key, const std::vector<ObjectSpec::Choice>& choices) {
    uint64_t value = 0;
    for (const auto& choice : choices) value = std::max(value, lengths[choice.value]);
    return add_lengths(key + kMemberBytes, value);
  };
  std::vector<uint64_t> required(names_words()), needed;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (spec_.properties[name].required) insert(required, name);
  }
  close_under_dependents(required);
  needed = required;
  for (const auto& dependent : spec_.dependents) insert(needed, dependent.second);

  uint64_t sum = kMemberBytes, all = 0, most = 0, always = 0;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (!possible_[name]) continue;
    const uint64_t length = longest(spelled_length(spec_.properties[name].name), spec_.properties[name].choices);
    if (has(needed, name)) sum = add_lengths(sum, length);
    always += has(required, name);
    all = add_lengths(all, length);
    most = std::max(most, length);
  }
  for (const uint32_t others : possible_others_) {
    if (!key_bounds(others)) return kInfinite;
    most = std::max(most, longest(key_bounds(others)->rest, spec_.others[others].choices));
  }
  // The member under way, one for each duty, and what the least count takes beyond what is required.
  const uint64_t beyond =
      1 + static_cast<uint64_t>(std::popcount(spec_.duties)) + spec_.min - std::min(spec_.min, always);
  if (spec_.min > always && !spec_.dependents.empty()) sum = add_lengths(sum, all);
  return add_lengths(sum, multiply_lengths(beyond, most));
}

/// One more member makes all the difference. Where none may come, it is all that the properties may be.
uint64_t ObjectRule::most_to_differ(RuleBounds& bounds) {
  if (whitespace_.indents()) return kInfinite;
  uint64_t fresh = kInfinite, all = possible_others_.empty() ? 0 : kInfinite;
  for (const uint32_t others : possible_others_) {
    if (spec_.max != kInfinite || !key_bounds(others) || !key_bounds(others)->endless) continue;
    for (const auto& choice : spec_.others[others].choices) {
      fresh = std::min(fresh, add_lengths(key_bounds(others)->rest + kMemberBytes, bounds.lengths()[choice.value]));
    }
  }
  if (fresh != kInfinite) return fresh;
  for (uint32_t name = 0; name < spec_.properties.size() && all != kInfinite; ++name) {
    if (!possible_[name]) continue;
    uint64_t value = 0;
    for (const auto& choice : spec_.properties[name].choices) {
      value = std::max(value, add_lengths(bounds.lengths()[choice.value], bounds.to_differ(choice.value)));
    }
    all = add_lengths(all, add_lengths(spelled_length(spec_.properties[name].name) + kMemberBytes, value));
  }
  return all;
}

/// The names that must be there, else those that may be; no white space.
ByteSet ObjectRule::likely(Local state, Reg reg) {
  ByteSet bytes;
  for (const char byte : std::string_view(" \t\r\n")) bytes.add(static_cast<uint8_t>(byte));
  if (static_cast<Phase>(state & 0xF) != Phase::key) return ~bytes;
  const Spelling& spelling = spellings_[state >> 32];
  if (spelling.escape != kPlain) return ByteSet::all();
  const auto words = members_of(reg);
  const auto& key = keys_->state(spelling.content);
  ByteSet required, open;
  for (uint32_t at = key.low; at < key.high; ++at) {
    if (!(words[kSets + names_words() + at / 64] >> (at % 64) & 1)) continue;
    const ObjectSpec::Property& property = spec_.properties[keys_->sorted()[at]];
    const char next = leaving_byte(property.name, key.length);
    (property.required ? required : open).add(static_cast<uint8_t>(next));
  }
  return required == ByteSet() ? open : required;
}

}  // namespace constrain::json
