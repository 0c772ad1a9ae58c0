#include "engine/json/object/object_cost.h"

#include <algorithm>
#include <string_view>

namespace constrain::json {

ObjectCost::ObjectCost(const ObjectShape& shape, const ObjectState& state, const WhitespaceRun& whitespace)
    : shape_(shape), state_(state), whitespace_(whitespace) {
  names_.reserve(shape.spec.properties.size());
  for (const auto& property : shape.spec.properties) names_.push_back(escaped_length(property.name));
}

uint64_t ObjectCost::member_length(uint32_t name, const Lengths& lengths, uint32_t duties) const {
  uint64_t value = kInfinite;
  for (const auto& choice : shape_.choices(name)) {
    if ((choice.duties & duties) == duties) value = std::min(value, lengths[choice.value]);
  }
  return add_lengths(names_[name] + 2, value);
}

std::vector<ObjectCost::OtherKey> ObjectCost::other_keys(const Members& members, const std::string& typed,
                                                         const std::vector<State>& at, size_t count, uint32_t duties,
                                                         const Lengths& lengths) {
  std::vector<OtherKey> out;
  for (size_t i = 0; i < shape_.spec.others.size(); ++i) {
    uint64_t value = kInfinite;
    for (const auto& choice : shape_.spec[shape_.spec.others[i].choices]) {
      if ((choice.duties & duties) == duties) value = std::min(value, lengths[choice.value]);
    }
    if (value == kInfinite || at[i] == kDead) continue;
    // Skips used keys and names, and asks for more words if too few are left.
    std::vector<OtherKey> found;
    for (size_t ask = count + 1; ask > 0; ask *= 2) {
      found.clear();
      const std::vector<std::string>& words = shape_.spec.others[i].keys->cheapest().from(at[i], ask);
      for (const std::string& rest : words) {
        if (found.size() == count) break;
        const std::string key = typed + rest;
        const bool planned = std::ranges::find(members.planned, key) != members.planned.end();
        if (planned || ObjectState::is_used(members.used, key) || shape_.is_name(key)) continue;
        found.push_back({add_lengths(escaped_length(rest) + 2, value), key});
      }
      if (found.size() == count || words.size() < ask) break;
    }
    out.insert(out.end(), found.begin(), found.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The shortest of the wanted keys that begin like a name. Where some key stands for any new one, guards refuse others.
std::vector<ObjectCost::OtherKey> ObjectCost::wanted_key(const Members& members, const std::string& typed,
                                                         uint32_t others, State at) {
  std::vector<OtherKey> found;
  Automaton& keys = shape_.spec.others[others].keys->automaton();
  for (auto key = std::ranges::lower_bound(shape_.wanted_keys, typed);
       key != shape_.wanted_keys.end() && key->starts_with(typed); ++key) {
    const std::string_view rest = std::string_view(*key).substr(typed.size());
    State end = at;
    for (size_t i = 0; i < rest.size() && end != kDead; ++i) end = keys.row(end)[static_cast<uint8_t>(rest[i])];
    const bool planned = std::ranges::find(members.planned, *key) != members.planned.end();
    if (end == kDead || !keys.accepting(end) || planned || ObjectState::is_used(members.used, *key)) continue;
    found.push_back({escaped_length(rest) + 2, *key});
  }
  std::ranges::sort(found);
  return found;
}

void ObjectCost::plan_duties(uint32_t open, const Members& members, const std::vector<uint64_t>& needed,
                             const Lengths& lengths, const Plan& so_far, uint64_t& best) {
  if (so_far.cost >= best) return;
  if (!open) {
    best = std::min(best, planned_length(members, needed, lengths, so_far));
    return;
  }
  // Assigns the first open duty, and any subset of the others, to one member.
  const uint32_t first = open & ~(open - 1);
  for (uint32_t group = open; group; group = (group - 1) & open) {
    if (!(group & first)) continue;
    for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
      if (has(members.seen, name) || name < members.next || so_far.properties.contains(name)) continue;
      const uint64_t whole = member_length(name, lengths, group);
      if (whole == kInfinite) continue;
      Plan plan = so_far;
      plan.cost = add_lengths(plan.cost, has(needed, name) ? whole - member_length(name, lengths) : whole);
      plan.properties[name] = group;
      plan_duties(open & ~group, members, needed, lengths, plan, best);
    }
    Members used = members;
    used.planned.insert(used.planned.end(), so_far.keys.begin(), so_far.keys.end());
    std::vector<State> starts;
    for (const auto& others : shape_.spec.others) starts.push_back(others.keys->automaton().start());
    const std::vector<OtherKey> keys = other_keys(used, "", starts, 1, group, lengths);
    if (keys.empty()) continue;
    Plan plan = so_far;
    plan.cost = add_lengths(plan.cost, keys.front().length);
    plan.others.push_back(keys.front().length);
    plan.keys.push_back(keys.front().key);
    plan_duties(open & ~group, members, needed, lengths, plan, best);
  }
}

uint64_t ObjectCost::rest_length(const Members& members, const Lengths& lengths) {
  const uint32_t open = shape_.spec.duties & ~static_cast<uint32_t>(members.met);
  if (!open) return planned_length(members, shape_.needed(members.seen), lengths, {});
  uint64_t best = kInfinite;
  plan_duties(open, members, shape_.needed(members.seen), lengths, {}, best);
  return best;
}

/// Bytes to the end of an object between two members.
uint64_t ObjectCost::end_length(const Members& members, const Lengths& lengths) {
  const Outlook outlook = state_.outlook(members);
  const uint64_t count = members.count + outlook.missing;
  const bool in_order = outlook.first_missing >= members.next;
  if (shape_.spec.duties || count < shape_.spec.min || count > shape_.spec.max || !in_order)
    return rest_length(members, lengths);
  if (count == 0) return 1;
  const uint64_t needed = needed_length(members, outlook, lengths);
  return members.count > 0 || needed == kInfinite ? needed : needed - 1;  // the first member has no comma
}

uint64_t ObjectCost::planned_length(const Members& members, std::vector<uint64_t> needed, const Lengths& lengths,
                                    const Plan& plan) {
  uint64_t sum = 0, count = members.count;
  // The spaces of an indented line are forced, and left out of lengths.
  const uint64_t line = whitespace_.indents() ? 1 : 0;
  const auto add = [&](uint64_t length) { sum = add_lengths(sum, add_lengths(length, (count++ > 0 ? 2 : 1) + line)); };
  for (const auto& [name, unused] : plan.properties) insert(needed, name);
  shape_.add_needed(needed);
  for (const uint64_t length : plan.others) add(length);

  // Optional members that fill up the least count: those that require no other, or else all.
  const auto may_come = [&](uint32_t name) {
    return has(members.seen, name) || (name >= members.next && member_length(name, lengths) != kInfinite);
  };
  std::vector<uint64_t> optional, dependent;
  for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
    if (has(members.seen, name) || (shape_.spec.min == 0 && !has(needed, name))) continue;
    const auto duties = plan.properties.find(name);
    const uint64_t length = member_length(name, lengths, duties == plan.properties.end() ? 0 : duties->second);
    if (has(needed, name)) {
      if (name < members.next) return kInfinite;
      add(length);
    } else if (shape_.needs_only(name, may_come)) {
      const bool alone = shape_.needs_only(name, [&](uint32_t other) { return other == name || has(needed, other); });
      (alone ? optional : dependent).push_back(length);
    }
  }
  if (sum == kInfinite || count > shape_.spec.max) return kInfinite;
  const auto closed = [&] { return add_lengths(sum, count > 0 ? 1 + line : 1); };
  if (count >= shape_.spec.min) return closed();

  Members planned = members;
  planned.planned.insert(planned.planned.end(), plan.keys.begin(), plan.keys.end());
  planned.others += plan.keys.size();
  std::vector<State> starts;
  for (const auto& others : shape_.spec.others) starts.push_back(others.keys->automaton().start());
  const size_t need = std::min(shape_.spec.min - count,
                               ObjectShape::kMaxOtherKeys - std::min(ObjectShape::kMaxOtherKeys, planned.others));
  const std::vector<OtherKey> others = other_keys(planned, "", starts, need, 0, lengths);
  for (size_t i = 0; i < std::min(need, others.size()); ++i) optional.push_back(others[i].length);
  std::sort(optional.begin(), optional.end());
  if (count + optional.size() < shape_.spec.min) {
    optional.insert(optional.end(), dependent.begin(), dependent.end());
    if (count + optional.size() < shape_.spec.min) return kInfinite;
    for (const uint64_t length : optional) add(length);
    return count > shape_.spec.max ? kInfinite : closed();
  }
  for (auto next = optional.begin(); count < shape_.spec.min; ++next) add(*next);
  return closed();
}

uint64_t ObjectCost::key_length(const Members& members, uint32_t id, const Lengths& lengths) {
  // Where no further keys are needed, and none can be repeated, the text of the key does not matter.
  const bool alone = shape_.is_plain && shape_.spec.min <= 1 && members.planned.empty();
  if (!alone || ObjectState::used_with_prefix(members.used, members.key) > 0) return measure_key(members, id, lengths);
  key_.assign({id, members.count, members.others, UsedKeys::hash(members.used)});
  key_.insert(key_.end(), members.seen.begin(), members.seen.end());
  if (const auto cached = keys_->find(key_)) return *cached;
  const std::vector<uint64_t> key = key_;
  const uint64_t length = measure_key(members, id, lengths);
  keys_->put(key, length, 0);
  return length;
}

uint64_t ObjectCost::measure_key(const Members& members, uint32_t id, const Lengths& lengths) {
  const Outlook outlook = state_.outlook(members);
  const bool plain = state_.needs_dependents_only(members, outlook);
  const uint64_t needed = plain ? needed_length(members, outlook, lengths) : 0;
  const bool unlimited = shape_.is_plain && shape_.spec.max == kInfinite;
  const auto is_open = [&](uint32_t name) {
    if (unlimited) return shape_.possible[name] && !has(members.seen, name);
    return state_.may_be_name(members, outlook, name);
  };
  uint64_t best = kInfinite;
  const auto consider = [&](uint64_t key, const Members& after, std::span<const ObjectSpec::Choice> choices) {
    for (const auto& choice : choices) {
      Members chosen = after;
      chosen.met |= choice.duties;
      best = std::min(best, add_lengths(add_lengths(key, lengths[choice.value]), end_length(chosen, lengths)));
    }
  };
  for (const auto& [content, typed, escape] : contents_ahead(shape_.spellings[id], KeyText::string(members.key))) {
    const auto& key = shape_.keys->state(content);
    const std::vector<uint32_t>& sorted = shape_.keys->sorted();
    const std::string_view any =
        key.low < key.high ? std::string_view(shape_.spec.properties[sorted[key.low]].name) : "";
    const uint64_t escaped = escaped_length(any.substr(0, key.length));  // of all names
    for (uint32_t i = key.low; i < key.high; ++i) {
      const uint32_t name = sorted[i];
      if (!is_open(name)) continue;
      if (plain) {
        const uint64_t whole = member_length(name, lengths);
        const uint64_t counted = has(outlook.needed, name) ? missing_length(name, lengths) : 0;
        const uint64_t others = add_lengths(needed - counted, dependents_length(members, outlook, name, lengths));
        best = std::min(best, add_lengths(escape + whole - escaped, others));
        continue;
      }
      const auto& property = shape_.spec.properties[name];
      consider(escape + escaped_length(std::string_view(property.name).substr(key.length)) + 2,
               state_.with_name(members, name), shape_.choices(name));
    }
    // A key that is no name leaves all required members to come.
    if (plain && best <= needed) continue;
    for (const uint32_t one : key.classes) {
      if (!state_.may_be_other(members, outlook, one)) continue;
      const uint32_t others = shape_.possible_others[one];
      std::vector<State> states(shape_.spec.others.size(), kDead);
      states[others] = shape_.keys->class_state(content, one);
      const bool known = typed.empty() || key.low == key.high || !ObjectState::used_any_new(members.used);
      const auto keys = known ? other_keys(members, typed, states, 1, 0, lengths)
                              : wanted_key(members, typed, others, states[others]);
      if (keys.empty()) continue;
      Members after = state_.with_other(members);
      after.planned.push_back(keys.front().key);
      consider(escape + escaped_length(std::string_view(keys.front().key).substr(typed.size())) + 2, after,
               shape_.other_choices(one));
    }
  }
  return best;
}

/// Lists the contents that a key may have once its escape is over.
std::vector<ObjectCost::Ahead> ObjectCost::contents_ahead(const KeySpelling& at, const std::string& typed) {
  if (at.escape == kPlain) return {{at.content, typed, 0}};
  std::vector<Ahead> ahead;
  const StateRow& row = shape_.keys->row(at.content);
  for (uint8_t byte = 0; byte < 0x80; ++byte) {
    if (row[byte] == kDead || !may_escape(at.escape, byte)) continue;
    ahead.push_back({row[byte], typed + static_cast<char>(byte), escape_rest(at.escape, byte)});
  }
  return ahead;
}

std::vector<std::string> ObjectCost::find_wanted_keys(const Lengths& lengths) {
  constexpr uint64_t kMost = 64;
  std::vector<std::string> found;
  if ((shape_.spec.min < 2 && !shape_.spec.duties) || shape_.spec.min > kMost) return found;
  const uint64_t wanted = shape_.spec.min + static_cast<uint64_t>(std::popcount(shape_.spec.duties));
  Members none;
  for (const uint32_t others : shape_.possible_others) {
    std::vector<State> states(shape_.spec.others.size(), kDead);
    states[others] = shape_.spec.others[others].keys->automaton().start();
    for (OtherKey& key : other_keys(none, "", states, wanted + ObjectShape::kWantedBesideUsed, 0, lengths)) {
      found.push_back(std::move(key.key));
    }
  }
  std::ranges::sort(found);
  return found;
}

/// Bytes of a member with its comma and, if lines are indented, the line break.
uint64_t ObjectCost::missing_length(uint32_t name, const Lengths& lengths) const {
  return add_lengths(member_length(name, lengths), whitespace_.indents() ? 3 : 2);
}

uint64_t ObjectCost::needed_length(const Members& members, const Outlook& outlook, const Lengths& lengths) const {
  uint64_t sum = whitespace_.indents() ? 2 : 1;
  for_each_name(outlook.needed, members.seen,
                [&](uint32_t name) { sum = add_lengths(sum, missing_length(name, lengths)); });
  return sum;
}

/// Bytes of the members that a new one makes necessary.
uint64_t ObjectCost::dependents_length(const Members& members, const Outlook& outlook, uint32_t name,
                                       const Lengths& lengths) const {
  if (shape_.closure.empty()) return 0;
  uint64_t sum = 0;
  for_each_name(shape_.closure[name], outlook.needed, [&](uint32_t other) {
    if (other != name && !has(members.seen, other)) sum = add_lengths(sum, missing_length(other, lengths));
  });
  return sum;
}

uint64_t ObjectCost::value_length(const Members& members, uint32_t label, const Lengths& lengths) {
  uint64_t best = kInfinite;
  for (const auto& choice : shape_.choices(label)) {
    Members chosen = members;
    chosen.met |= choice.duties;
    if (shape_.spec.duties && !state_.duties_can_be_met(chosen)) continue;
    best = std::min(best, add_lengths(lengths[choice.value], end_length(chosen, lengths)));
  }
  return best;
}

uint64_t ObjectCost::remaining(Local state, Reg reg, const Lengths& lengths) {
  return add_lengths(remaining_after_run(state, reg, lengths), whitespace_.missing(ObjectPosition::of(state).run));
}

/// Ignores bytes that the white space under way still needs.
uint64_t ObjectCost::remaining_after_run(Local state, Reg reg, const Lengths& lengths) {
  const auto [phase, run, operand] = ObjectPosition::of(state);
  const Members members = state_.unpack(reg);
  switch (phase) {
    case ObjectPosition::start:
      return add_lengths(rest_length(members, lengths), 1);
    case ObjectPosition::open:
      if (whitespace_.indents() && run > 0) return add_lengths(key_length(members, 0, lengths), 1);
      return end_length(members, lengths);
    case ObjectPosition::after:
      return end_length(members, lengths);
    case ObjectPosition::next:
      return add_lengths(key_length(members, 0, lengths), whitespace_.indents() && run == 0 ? 2 : 1);
    case ObjectPosition::comma_before:
      return add_lengths(key_length(members, 0, lengths), 2);
    case ObjectPosition::key:
      return key_length(members, operand, lengths);
    case ObjectPosition::colon_before:
    case ObjectPosition::colon:
      return add_lengths(value_length(members, operand, lengths), phase == ObjectPosition::colon_before ? 1 : 0);
    case ObjectPosition::closing:
      return 1;
    case ObjectPosition::end:
      return 0;
  }
  return kInfinite;
}

}  // namespace constrain::json
