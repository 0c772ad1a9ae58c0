#include <algorithm>
#include <span>

#include "engine/json/object_keys.h"
#include "engine/json/object_rule.h"

namespace constrain::json {

namespace {

/// A bit from `begin` to before `end` is set.
bool any_bit(std::span<const uint64_t> words, size_t begin, size_t end) {
  while (begin < end) {
    const uint64_t word = words[begin / 64] >> (begin % 64);
    if (word) return begin + static_cast<size_t>(std::countr_zero(word)) < end;
    begin = (begin / 64 + 1) * 64;
  }
  return false;
}

}  // namespace

// Which members may still come.

ObjectRule::Outlook ObjectRule::outlook(const Members& members) const {
  Outlook out;
  out.needed = members.seen;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (spec_.properties[name].required) insert(out.needed, name);
  }
  close_under_dependents(out.needed);
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (!has(out.needed, name) || has(members.seen, name)) continue;
    ++out.missing;
    out.first_missing = std::min<uint64_t>(out.first_missing, name);
  }
  const uint64_t words = keys_->state(keys_->start()).other_words;
  const uint64_t room = kMaxOtherKeys - members.others;
  out.others = words >= KeyAutomaton::kManyWords ? room : std::min(room, words - std::min(words, members.others));
  return out;
}

uint64_t ObjectRule::available_from(const Members& members, uint64_t from) const {
  const auto may_come = [&](uint32_t name) { return has(members.seen, name) || (name >= from && possible_[name]); };
  uint64_t count = 0;
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    count += !has(members.seen, name) && needs_only(name, may_come);
  }
  return count;
}

bool ObjectRule::may_close(const Members& members, const Outlook& outlook) const {
  return members.count >= spec_.min && outlook.missing == 0 && (members.met & spec_.duties) == spec_.duties;
}

ObjectRule::Members ObjectRule::with_name(const Members& members, uint32_t name) const {
  Members after = members;
  insert(after.seen, name);
  after.next = spec_.in_order ? name + 1 : 0;
  ++after.count;
  after.key = 0;
  return after;
}

ObjectRule::Members ObjectRule::with_other(const Members& members) const {
  Members after = members;
  ++after.others;
  after.next = spec_.in_order ? spec_.properties.size() : 0;
  ++after.count;
  after.key = 0;
  return after;
}

bool ObjectRule::some_choice_fits(const Members& after, const std::vector<ObjectSpec::Choice>& choices) const {
  if (!spec_.duties) return true;
  return std::any_of(choices.begin(), choices.end(), [&](const auto& choice) {
    Members chosen = after;
    chosen.met |= choice.duties;
    return duties_can_be_met(chosen);
  });
}

bool ObjectRule::duties_can_be_met(const Members& members) const {
  const uint32_t open = spec_.duties & ~static_cast<uint32_t>(members.met);
  if (!open) return true;
  // Fewest optional members for every set of duties: members that are needed anyway cost nothing.
  const Outlook outlook = this->outlook(members);
  constexpr uint64_t kNever = kInfinite;
  std::vector<uint64_t> cost(size_t{1} << ObjectSpec::kMaxDuties, kNever);
  cost[0] = 0;
  const auto offer = [&](const std::vector<ObjectSpec::Choice>& choices, uint64_t price) {
    const std::vector<uint64_t> before = cost;
    for (uint32_t done = 0; done < before.size(); ++done) {
      if (before[done] == kNever) continue;
      for (const auto& choice : choices) {
        uint64_t& to = cost[done | (choice.duties & open)];
        to = std::min(to, before[done] + price);
      }
    }
  };
  const auto may_come = [&](uint32_t name) {
    return has(members.seen, name) || (name >= members.next && possible_[name]);
  };
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    if (has(members.seen, name) || !needs_only(name, may_come)) continue;
    uint64_t price = 0;
    needs_only(name, [&](uint32_t needed) { return price += !has(outlook.needed, needed), true; });
    offer(spec_.properties[name].choices, price);
  }
  for (size_t use = 0; use < std::min<uint64_t>(outlook.others, ObjectSpec::kMaxDuties); ++use) {
    for (const uint32_t others : possible_others_) offer(spec_.others[others].choices, 1);
  }
  return cost[open] != kNever && members.count + outlook.missing + cost[open] <= spec_.max;
}

bool ObjectRule::may_be_name(const Members& members, const Outlook& outlook, uint32_t name) const {
  if (!possible_[name] || has(members.seen, name)) return false;
  // What the name needs in turn has to be there as well, and in order only later properties still can.
  uint64_t missing = 0, first_missing = UINT64_MAX;
  if (spec_.dependents.empty()) {
    missing = outlook.missing - (has(outlook.needed, name) ? 1 : 0);
    first_missing = outlook.first_missing;
  } else {
    for (uint32_t other = 0; other < spec_.properties.size(); ++other) {
      const bool needed = has(outlook.needed, other) || has(closure_[name], other);
      if (!needed || other == name || has(members.seen, other)) continue;
      ++missing;
      first_missing = std::min<uint64_t>(first_missing, other);
    }
  }
  if (members.count + 1 + missing > spec_.max) return false;
  if (spec_.in_order) {
    if (name < members.next || first_missing < name) return false;
    const uint64_t have = members.count + outlook.others;
    if (have < spec_.min && have + available_from(members, name) < spec_.min) return false;
  }
  return !spec_.duties || some_choice_fits(with_name(members, name), spec_.properties[name].choices);
}

bool ObjectRule::may_be_other(const Members& members, const Outlook& outlook, uint32_t one) const {
  if (outlook.others == 0 || members.count + 1 + outlook.missing > spec_.max) return false;
  if (spec_.in_order && (outlook.missing > 0 || members.count + outlook.others < spec_.min)) return false;
  return !spec_.duties || some_choice_fits(with_other(members), spec_.others[possible_others_[one]].choices);
}

bool ObjectRule::viable(std::span<const uint64_t> settled, Reg text, const Spelling& spelling,
                        Registers* registers) const {
  const auto contents = spelling.contents();
  // That some endless set of keys is open, outlines tell; the rest has to be looked up.
  const auto endless = [&](State content) {
    const auto& key = keys_->state(content);
    return key.other_words >= KeyAutomaton::kManyWords && class_open(settled, key);
  };
  if (std::ranges::any_of(contents, endless)) return true;
  if (registers) registers->consult(this);
  return std::ranges::any_of(
      contents, [&](State content) { return name_viable(settled, content) || other_viable(settled, text, content); });
}

bool ObjectRule::name_viable(std::span<const uint64_t> settled, State content) const {
  const auto& key = keys_->state(content);
  return any_bit(settled.subspan(kSets + names_words()), key.low, key.high);
}

bool ObjectRule::class_open(std::span<const uint64_t> settled, const KeyAutomaton::KeyState& key) const {
  const auto open = settled.subspan(kSets + 2 * names_words());
  return std::ranges::any_of(key.classes, [&](uint32_t one) { return open[one / 64] >> (one % 64) & 1; });
}

bool ObjectRule::other_viable(std::span<const uint64_t> settled, Reg text, State content) const {
  const auto& key = keys_->state(content);
  if (!class_open(settled, key)) return false;
  return key.other_words >= KeyAutomaton::kManyWords || used_with_prefix(settled[kUsed], text) < key.other_words;
}

uint64_t ObjectRule::used_with_prefix(Reg used, Reg prefix) {
  uint64_t count = 0;
  for (; used; used = UsedKeys::rest(used)) count += KeyText::starts_with(UsedKeys::text(used), prefix);
  return count;
}

bool ObjectRule::is_used(Reg used, std::string_view key) {
  for (Reg list = used; list; list = UsedKeys::rest(list)) {
    if (KeyText::spells(UsedKeys::text(list), key)) return true;
  }
  return false;
}

bool ObjectRule::is_name(const std::string& key) const {
  return std::any_of(spec_.properties.begin(), spec_.properties.end(),
                     [&](auto& property) { return property.name == key; });
}

}  // namespace constrain::json
