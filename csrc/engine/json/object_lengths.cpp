#include <algorithm>
#include <string_view>

#include "engine/grammar/parse_table.h"
#include "engine/json/object_keys.h"
#include "engine/json/object_rule.h"

namespace constrain::json {

// How an object ends in the fewest bytes, and how many values it may still have.

uint64_t ObjectRule::member_length(uint32_t name, uint32_t typed, const Lengths& lengths, uint32_t duties) const {
  const auto& property = spec_.properties[name];
  const uint64_t key = spelled_length(std::string_view(property.name).substr(typed)) + 2;
  uint64_t value = kInfinite;
  for (const auto& choice : property.choices) {
    if ((choice.duties & duties) == duties) value = std::min(value, lengths[choice.value]);
  }
  return add_lengths(key, value);
}

std::vector<ObjectRule::OtherKey> ObjectRule::other_keys(const Members& members, const std::string& typed,
                                                         const std::vector<State>& at, size_t count, uint32_t duties,
                                                         const Lengths& lengths) {
  std::vector<OtherKey> out;
  for (size_t i = 0; i < spec_.others.size(); ++i) {
    uint64_t value = kInfinite;
    for (const auto& choice : spec_.others[i].choices) {
      if ((choice.duties & duties) == duties) value = std::min(value, lengths[choice.value]);
    }
    if (value == kInfinite || at[i] == kDead) continue;
    // Some may turn out to be used already, or to be names; then more are asked for.
    std::vector<OtherKey> found;
    for (size_t ask = count + 1; ask > 0; ask *= 2) {
      found.clear();
      const std::vector<std::string>& words = cheapest_[i].from(at[i], ask);
      for (const std::string& rest : words) {
        if (found.size() == count) break;
        const std::string key = typed + rest;
        const bool planned = std::ranges::find(members.planned, key) != members.planned.end();
        if (planned || is_used(members.used, key) || is_name(key)) continue;
        found.push_back({add_lengths(spelled_length(rest) + 2, value), key});
      }
      if (found.size() == count || words.size() < ask) break;
    }
    out.insert(out.end(), found.begin(), found.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

void ObjectRule::plan_duties(uint32_t open, const Members& members, const std::vector<uint64_t>& needed,
                             const Lengths& lengths, const Plan& so_far, uint64_t& best) {
  if (so_far.cost >= best) return;
  if (!open) {
    best = std::min(best, planned_length(members, needed, lengths, so_far));
    return;
  }
  // One member takes the first open duty, and any of the others with it.
  const uint32_t first = open & ~(open - 1);
  for (uint32_t group = open; group; group = (group - 1) & open) {
    if (!(group & first)) continue;
    for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
      if (has(members.seen, name) || name < members.next || so_far.properties.contains(name)) continue;
      const uint64_t whole = member_length(name, 0, lengths, group);
      if (whole == kInfinite) continue;
      Plan plan = so_far;
      plan.cost = add_lengths(plan.cost, has(needed, name) ? whole - member_length(name, 0, lengths) : whole);
      plan.properties[name] = group;
      plan_duties(open & ~group, members, needed, lengths, plan, best);
    }
    Members used = members;
    used.planned.insert(used.planned.end(), so_far.keys.begin(), so_far.keys.end());
    std::vector<State> starts;
    for (const auto& others : spec_.others) starts.push_back(others.keys->start());
    const std::vector<OtherKey> keys = other_keys(used, "", starts, 1, group, lengths);
    if (keys.empty()) continue;
    Plan plan = so_far;
    plan.cost = add_lengths(plan.cost, keys.front().length);
    plan.others.push_back(keys.front().length);
    plan.keys.push_back(keys.front().key);
    plan_duties(open & ~group, members, needed, lengths, plan, best);
  }
}

uint64_t ObjectRule::rest_length(const Members& members, const Lengths& lengths) {
  std::vector<uint64_t> needed = members.seen;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (spec_.properties[name].required) insert(needed, name);
  }
  close_under_dependents(needed);
  uint64_t best = kInfinite;
  plan_duties(spec_.duties & ~static_cast<uint32_t>(members.met), members, needed, lengths, {}, best);
  return best;
}

uint64_t ObjectRule::planned_length(const Members& members, std::vector<uint64_t> needed, const Lengths& lengths,
                                    const Plan& plan) {
  uint64_t sum = 0, count = members.count;
  // Every line of an indented object counts as one byte: its spaces are no choice, and are left out of lengths.
  const uint64_t line = whitespace_.indents() ? 1 : 0;
  const auto add = [&](uint64_t length) { sum = add_lengths(sum, add_lengths(length, (count++ > 0 ? 2 : 1) + line)); };
  for (const auto& [name, unused] : plan.properties) insert(needed, name);
  close_under_dependents(needed);
  for (const uint64_t length : plan.others) add(length);

  // Members that may be added to reach the least count: those that need no other, or else all that are left.
  const auto may_come = [&](uint32_t name) {
    return has(members.seen, name) || (name >= members.next && member_length(name, 0, lengths) != kInfinite);
  };
  std::vector<uint64_t> optional, dependent;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (has(members.seen, name)) continue;
    const auto duties = plan.properties.find(name);
    const uint64_t length = member_length(name, 0, lengths, duties == plan.properties.end() ? 0 : duties->second);
    if (has(needed, name)) {
      if (name < members.next) return kInfinite;
      add(length);
    } else if (needs_only(name, may_come)) {
      const bool alone = needs_only(name, [&](uint32_t other) { return other == name || has(needed, other); });
      (alone ? optional : dependent).push_back(length);
    }
  }
  if (sum == kInfinite || count > spec_.max) return kInfinite;
  const auto closed = [&] { return add_lengths(sum, count > 0 ? 1 + line : 1); };
  if (count >= spec_.min) return closed();

  Members planned = members;
  planned.planned.insert(planned.planned.end(), plan.keys.begin(), plan.keys.end());
  planned.others += plan.keys.size();
  std::vector<State> starts;
  for (const auto& others : spec_.others) starts.push_back(others.keys->start());
  const size_t need = std::min(spec_.min - count, kMaxOtherKeys - std::min(kMaxOtherKeys, planned.others));
  const std::vector<OtherKey> others = other_keys(planned, "", starts, need, 0, lengths);
  for (size_t i = 0; i < std::min(need, others.size()); ++i) optional.push_back(others[i].length);
  std::sort(optional.begin(), optional.end());
  if (count + optional.size() < spec_.min) {
    optional.insert(optional.end(), dependent.begin(), dependent.end());
    if (count + optional.size() < spec_.min) return kInfinite;
    for (const uint64_t length : optional) add(length);
    return count > spec_.max ? kInfinite : closed();
  }
  for (auto next = optional.begin(); count < spec_.min; ++next) add(*next);
  return closed();
}

uint64_t ObjectRule::key_length(const Members& members, uint32_t id, const Lengths& lengths) {
  const Outlook outlook = this->outlook(members);
  const bool plain = needs_no_other(members, outlook);
  const uint64_t needed = plain ? needed_length(members, outlook, lengths) : 0;
  uint64_t best = kInfinite;
  const auto consider = [&](uint64_t key, const Members& after, const std::vector<ObjectSpec::Choice>& choices) {
    for (const auto& choice : choices) {
      Members chosen = after;
      chosen.met |= choice.duties;
      best = std::min(best, add_lengths(add_lengths(key, lengths[choice.value]), rest_length(chosen, lengths)));
    }
  };
  for (const auto& [content, typed, escape] : contents_ahead(spellings_[id], KeyText::string(members.key))) {
    const auto& key = keys_->state(content);
    for (uint32_t i = key.low; i < key.high; ++i) {
      const uint32_t name = keys_->sorted()[i];
      if (!may_be_name(members, outlook, name)) continue;
      if (plain) {
        const uint64_t counted = has(outlook.needed, name) ? missing_length(name, lengths) : 0;
        best = std::min(best, add_lengths(escape + member_length(name, key.length, lengths), needed - counted));
        continue;
      }
      const auto& property = spec_.properties[name];
      consider(escape + spelled_length(std::string_view(property.name).substr(key.length)) + 2,
               with_name(members, name), property.choices);
    }
    // Another key leaves all that is needed to come after it.
    if (plain && best <= needed) continue;
    for (const uint32_t one : key.classes) {
      if (!may_be_other(members, outlook, one)) continue;
      const uint32_t others = possible_others_[one];
      std::vector<State> states(spec_.others.size(), kDead);
      states[others] = keys_->class_state(content, one);
      const auto keys = other_keys(members, typed, states, 1, 0, lengths);
      if (keys.empty()) continue;
      Members after = with_other(members);
      after.planned.push_back(keys.front().key);
      consider(escape + spelled_length(std::string_view(keys.front().key).substr(typed.size())) + 2, after,
               spec_.others[others].choices);
    }
  }
  return best;
}

/// What the content of a key may be when an escape is over, and what was typed of it then.
std::vector<ObjectRule::Ahead> ObjectRule::contents_ahead(const Spelling& at, const std::string& typed) {
  if (at.escape == kPlain) return {{at.content, typed, 0}};
  std::vector<Ahead> ahead;
  const StateRow& row = keys_->row(at.content);
  for (uint8_t byte = 0; byte < 0x80; ++byte) {
    if (row[byte] == kDead || !may_escape(at.escape, byte)) continue;
    ahead.push_back({row[byte], typed + static_cast<char>(byte), escape_rest(at.escape, byte)});
  }
  return ahead;
}

/// No member is needed, after the next one, but those that are missing now.
bool ObjectRule::needs_no_other(const Members& members, const Outlook& outlook) const {
  const uint64_t count = members.count + std::max<uint64_t>(outlook.missing, 1);
  return !spec_.duties && spec_.dependents.empty() && count >= spec_.min;
}

/// After one more member that is no property, none is needed but the properties that are missing.
bool ObjectRule::others_suffice(const Members& members, const Outlook& outlook) const {
  return !(spec_.duties & ~members.met) && members.count + 1 + outlook.missing >= spec_.min;
}

/// Lists the other keys among which those are that shortest ends need for the least count or for duties. None where
/// that would be many.
void ObjectRule::find_wanted_keys(const Lengths& lengths) {
  constexpr uint64_t kMost = 64;
  wanted_keys_.clear();
  if ((spec_.min < 2 && !spec_.duties) || spec_.min > kMost) return;
  const uint64_t wanted = spec_.min + static_cast<uint64_t>(std::popcount(spec_.duties));
  Members none;
  for (const uint32_t others : possible_others_) {
    std::vector<State> states(spec_.others.size(), kDead);
    states[others] = spec_.others[others].keys->start();
    for (OtherKey& key : other_keys(none, "", states, wanted + kWantedBesideUsed, 0, lengths)) {
      wanted_keys_.push_back(std::move(key.key));
    }
  }
  std::ranges::sort(wanted_keys_);
}

/// Bytes of a member with its comma and, where lines are indented, the line break.
uint64_t ObjectRule::missing_length(uint32_t name, const Lengths& lengths) const {
  return add_lengths(member_length(name, 0, lengths), whitespace_.indents() ? 3 : 2);
}

/// Bytes of the members that are missing, with their commas, and of the closing bracket.
uint64_t ObjectRule::needed_length(const Members& members, const Outlook& outlook, const Lengths& lengths) const {
  uint64_t sum = whitespace_.indents() ? 2 : 1;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (!has(outlook.needed, name) || has(members.seen, name)) continue;
    sum = add_lengths(sum, missing_length(name, lengths));
  }
  return sum;
}

uint64_t ObjectRule::value_length(const Members& members, uint32_t label, const Lengths& lengths) {
  uint64_t best = kInfinite;
  for (const auto& choice : choices(label)) {
    Members chosen = members;
    chosen.met |= choice.duties;
    if (spec_.duties && !duties_can_be_met(chosen)) continue;
    best = std::min(best, add_lengths(lengths[choice.value], rest_length(chosen, lengths)));
  }
  return best;
}

uint64_t ObjectRule::remaining(Local state, Reg reg, const Lengths& lengths) {
  return add_lengths(remaining_after_run(state, reg, lengths), whitespace_.missing(static_cast<uint32_t>(state) >> 4));
}

/// The same without what the white space under way still wants.
uint64_t ObjectRule::remaining_after_run(Local state, Reg reg, const Lengths& lengths) {
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, operand = static_cast<uint32_t>(state >> 32);
  const Members members = unpack(reg);
  switch (phase) {
    case Phase::start:
      return add_lengths(rest_length(members, lengths), 1);
    case Phase::open:
      if (whitespace_.indents() && run > 0) return add_lengths(key_length(members, 0, lengths), 1);
      return rest_length(members, lengths);
    case Phase::after:
      return rest_length(members, lengths);
    case Phase::next:
      return add_lengths(key_length(members, 0, lengths), whitespace_.indents() && run == 0 ? 2 : 1);
    case Phase::comma_before:
      return add_lengths(key_length(members, 0, lengths), 2);
    case Phase::key:
      return key_length(members, operand, lengths);
    case Phase::colon_before:
    case Phase::colon:
      return add_lengths(value_length(members, operand, lengths), phase == Phase::colon_before ? 1 : 0);
    case Phase::closing:
      return 1;
    case Phase::end:
      return 0;
  }
  return kInfinite;
}

/// Offers the values of the members that a key under way may still become.
template <class Offer>
void ObjectRule::offer_keys(uint64_t spelling, const Members& members, const Outlook& outlook, const Offer& offer) {
  for (const State content : spellings_[spelling].contents()) {
    const auto& key = keys_->state(content);
    for (uint32_t at = key.low; at < key.high; ++at) {
      const uint32_t name = keys_->sorted()[at];
      if (may_be_name(members, outlook, name)) offer(spec_.properties[name].choices);
    }
    for (const uint32_t one : key.classes) {
      const bool endless = keys_->class_words(one, keys_->class_state(content, one)) >= KeyAutomaton::kManyWords;
      if (endless && may_be_other(members, outlook, one)) offer(spec_.others[possible_others_[one]].choices);
    }
  }
}

uint64_t ObjectRule::variety(Local state, Reg reg, const ParseTable& grammar) {
  const auto phase = static_cast<Phase>(state & 0xF);
  if (phase == Phase::closing || phase == Phase::end || spec_.duties) return 1;
  const Members members = unpack(reg);
  const Outlook outlook = this->outlook(members);
  uint64_t most = 1;
  const auto offer = [&](const std::vector<ObjectSpec::Choice>& choices) {
    for (const auto& choice : choices) most = std::max(most, grammar.variety_of(choice.value));
  };
  const bool valued = phase == Phase::colon_before || phase == Phase::colon;
  if (valued) offer(choices(state >> 32));
  if (phase == Phase::key) offer_keys(state >> 32, members, outlook, offer);
  // One member may be under way; others come after it.
  const bool between = phase != Phase::key && !valued;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    const bool comes = has(outlook.needed, name) || (between && may_be_name(members, outlook, name));
    if (comes && !has(members.seen, name)) offer(spec_.properties[name].choices);
  }
  const bool room = members.count + outlook.missing + 2 <= spec_.max;
  return room && outlook.others > 1 ? std::max(most, outlook.others - 1) : most;
}

}  // namespace constrain::json
