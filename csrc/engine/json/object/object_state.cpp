#include "engine/json/object/object_state.h"

#include <algorithm>
#include <bit>

#include "engine/base/bits.h"

namespace constrain::json {

void ObjectState::prepare() {
  Members none;
  none.seen.resize(shape_.names_words());
  first_ = resolve(none);
  first_.insert(first_.begin(), first_.size());
}

ObjectState::Members ObjectState::counts(std::span<const uint64_t> resolved) {
  Members members;
  members.count = resolved[kCount], members.next = resolved[kNext], members.others = resolved[kOthers];
  members.used = resolved[kUsed], members.met = resolved[kMet];
  return members;
}

ObjectState::Members ObjectState::unpack(Reg reg) const {
  Members members;
  members.seen.resize(shape_.names_words());
  if (!reg) return members;
  const auto words = Registers::words(reg);
  switch (words[0]) {
    case kResolved:
      members = counts(words);
      members.seen.assign(words.begin() + kSets, words.begin() + static_cast<ptrdiff_t>(kSets + shape_.names_words()));
      return members;
    case kSpelling:
      members = unpack(words[kBase]);
      members.key = words[kKey];
      return members;
    default:
      members = unpack(words[kBase]);
      members = words[kLabel] < shape_.spec.properties.size() ? with_name(members, static_cast<uint32_t>(words[kLabel]))
                                                              : with_other(members);
      members.used = words[kNewUsed];
      members.met |= words[kNewMet];
      return members;
  }
}

std::vector<uint64_t> ObjectState::resolve(const Members& members) const {
  std::vector<uint64_t> words(kSets + 2 * shape_.names_words() + shape_.classes_words());
  words[kCount] = members.count, words[kNext] = members.next, words[kOthers] = members.others;
  words[kUsed] = members.used, words[kMet] = members.met;
  std::copy(members.seen.begin(), members.seen.end(), words.begin() + kSets);
  const Outlook outlook = this->outlook(members);
  const std::span<uint64_t> open = std::span(words).subspan(kSets + shape_.names_words());
  const std::vector<uint32_t>& sorted = shape_.keys->sorted();
  for (uint32_t at = 0; at < sorted.size(); ++at) {
    if (may_be_name(members, outlook, sorted[at])) open[at / 64] |= uint64_t{1} << (at % 64);
  }
  for (uint32_t one = 0; one < shape_.possible_others.size(); ++one) {
    if (may_be_other(members, outlook, one)) open[shape_.names_words() + one / 64] |= uint64_t{1} << (one % 64);
  }
  words[kMissing] = outlook.missing;
  for (Reg list = members.used; list; list = UsedKeys::rest(list)) {
    if (KeyText::is_any_new(UsedKeys::text(list))) words[kFlags] = kUsedAnyNew;
    words[kOutlined] += outlined_hash(UsedKeys::text(list));
  }
  words[kFlags] |= flags(words);
  return words;
}

std::vector<uint64_t> ObjectState::resolve_begun(std::span<const uint64_t> begun) const {
  const auto base = Registers::words(begun[kBase]);
  if (shape_.is_plain) {
    std::vector<uint64_t> words(base.begin(), base.end());
    if (add_member(words, begun[kLabel], begun[kNewUsed])) return words;
  }
  return resolve(unpack(reinterpret_cast<Reg>(begun.data())));
}

uint64_t ObjectState::outlined_hash(Reg text) const {
  return shape_.is_outlined(KeyText::string(text)) ? KeyText::hash(text) | 1 : 0;
}

/// Adds a member to a resolved block of a plain object; false if that changes which others are open.
bool ObjectState::add_member(std::vector<uint64_t>& words, uint64_t label, Reg used) const {
  const bool had_room = other_room(words[kOthers]) > 0;
  ++words[kCount];
  if (label < shape_.spec.properties.size()) {
    words[kSets + label / 64] |= uint64_t{1} << (label % 64);
    const uint32_t at = shape_.place[label];
    words[kSets + shape_.names_words() + at / 64] &= ~(uint64_t{1} << (at % 64));
    words[kMissing] -= shape_.spec.properties[label].required;
  } else {
    ++words[kOthers];
    words[kOutlined] += outlined_hash(UsedKeys::text(used));
  }
  words[kUsed] = used;
  words[kFlags] &= kUsedAnyNew;
  if (used && KeyText::is_any_new(UsedKeys::text(used))) words[kFlags] = kUsedAnyNew;
  words[kFlags] |= flags(words);
  return words[kCount] + 1 + words[kMissing] <= shape_.spec.max && (other_room(words[kOthers]) > 0) == had_room;
}

/// The flags that follow from the other words of a resolved block.
uint64_t ObjectState::flags(std::span<const uint64_t> words) const {
  Members members;
  members.count = words[kCount], members.met = words[kMet];
  const uint64_t missing = words[kMissing];
  uint64_t flags = may_close(members, missing) ? kMayClose : 0;
  if (viable(words, 0, shape_.spellings[0], nullptr)) flags |= kMayGoOn;
  if (others_suffice(members, missing)) flags |= kOthersSuffice;
  ++members.count;
  if (may_close(members, missing)) flags |= kMayCloseNext;
  const bool room = words[kCount] + 2 + missing <= shape_.spec.max && other_room(words[kOthers]) > 1;
  if (shape_.is_plain && room && flags & kOthersSuffice && is_endless(words, shape_.spellings[0])) flags |= kSteady;
  return flags;
}

std::span<const uint64_t> ObjectState::members_of(Reg reg) const {
  if (!reg) return std::span<const uint64_t>(first_).subspan(1);
  const auto words = Registers::words(reg);
  return words[0] == kSpelling ? Registers::words(words[kBase]) : words;
}

Reg ObjectState::resolved(Reg reg, Registers& registers) const {
  if (!reg) return reinterpret_cast<Reg>(first_.data() + 1);
  const auto words = Registers::words(reg);
  Reg members = words[0] == kResolved ? reg : words[kBase];
  if (words[0] == kBegun) {
    std::vector<uint64_t> made = resolve_begun(words);
    const uint64_t before = Registers::words(members)[kFlags];
    const bool implied = (before & (kSteady | kAhead)) == kSteady && words[kLabel] >= shape_.spec.properties.size();
    if (Registers::is_temporary(reg)) made[kFlags] |= kAhead | (implied ? kImplied : 0);
    members = registers.make(made);
  }
  if ((Registers::words(members)[kFlags] & (kAhead | kImplied)) == kAhead) consult(registers);
  return members;
}

Reg ObjectState::ending(Reg reg, bool one, Registers& registers) const {
  if (!shape_.is_plain || shape_.spec.max != kInfinite || !registers.only_endings) return reg;
  const bool begun = reg && Registers::words(reg)[0] == kBegun;
  const auto members = members_of(reg);
  if (!begun && members[kFlags] & kEnding) return reg;
  std::vector<uint64_t> words =
      begun ? resolve_begun(Registers::words(reg)) : std::vector(members.begin(), members.end());
  if (words[kCount] + words[kMissing] < std::max<uint64_t>(shape_.spec.min, 1) || (one && words[kMissing] == 0))
    return reg;
  words[kCount] = std::max<uint64_t>(shape_.spec.min, 1);
  words[kNext] = words[kOthers] = words[kUsed] = words[kOutlined] = words[kFlags] = 0;
  const std::span<uint64_t> seen = std::span(words).subspan(kSets, shape_.names_words());
  const std::span<uint64_t> open = std::span(words).subspan(kSets + seen.size(), seen.size());
  std::ranges::fill(open, 0);
  for (size_t word = 0; word < seen.size(); ++word) {
    seen[word] |= ~shape_.required[word];
    for (uint64_t left = ~seen[word]; left; left &= left - 1) {
      const uint32_t at = shape_.place[64 * word + static_cast<size_t>(std::countr_zero(left))];
      open[at / 64] |= uint64_t{1} << (at % 64);
    }
  }
  words[kFlags] = flags(words) | kEnding;
  return registers.make(words);
}

ObjectState::Outlook ObjectState::outlook(const Members& members) const {
  Outlook out;
  out.needed = shape_.needed(members.seen);
  for_each_name(out.needed, members.seen, [&](uint32_t name) {
    if (out.missing++ == 0) out.first_missing = name;
  });
  out.others = other_room(members.others);
  return out;
}

/// Other keys that may come after some, saturating.
uint64_t ObjectState::other_room(uint64_t others) const {
  const uint64_t words = shape_.keys->state(shape_.keys->start()).other_words;
  const uint64_t room = ObjectShape::kMaxOtherKeys - others;
  return words >= KeyAutomaton::kManyWords ? room : std::min(room, words - std::min(words, others));
}

uint64_t ObjectState::available_from(const Members& members, uint64_t from) const {
  const auto may_come = [&](uint32_t name) {
    return has(members.seen, name) || (name >= from && shape_.possible[name]);
  };
  uint64_t count = 0;
  for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
    count += !has(members.seen, name) && shape_.needs_only(name, may_come);
  }
  return count;
}

bool ObjectState::may_close(const Members& members, uint64_t missing) const {
  return members.count >= shape_.spec.min && missing == 0 && (members.met & shape_.spec.duties) == shape_.spec.duties;
}

ObjectState::Members ObjectState::with_name(const Members& members, uint32_t name) const {
  Members after = members;
  insert(after.seen, name);
  after.next = shape_.spec.in_order ? name + 1 : 0;
  ++after.count;
  after.key = 0;
  return after;
}

ObjectState::Members ObjectState::with_other(const Members& members) const {
  Members after = members;
  ++after.others;
  after.next = shape_.spec.in_order ? shape_.spec.properties.size() : 0;
  ++after.count;
  after.key = 0;
  return after;
}

/// Keys of a class that are not used, saturating.
uint64_t ObjectState::class_room(Reg used, uint32_t key_class) const {
  const uint64_t words = shape_.keys->state(shape_.keys->start()).words[key_class];
  if (words >= KeyAutomaton::kManyWords) return words;
  uint64_t taken = 0;
  for (; used; used = UsedKeys::rest(used)) taken += UsedKeys::key_class(used) == key_class;
  return words - taken;
}

bool ObjectState::some_choice_fits(const Members& after, uint32_t label) const {
  if (!shape_.spec.duties) return true;
  return std::ranges::any_of(shape_.choices(label), [&](const auto& choice) {
    Members chosen = after;
    chosen.met |= choice.duties;
    return duties_can_be_met(chosen, label);
  });
}

bool ObjectState::duties_can_be_met(const Members& members, std::optional<uint32_t> latest) const {
  const uint32_t open = shape_.spec.duties & ~static_cast<uint32_t>(members.met);
  if (!open) return true;
  // Fewest optional members for every set of duties; required members cost nothing.
  const Outlook outlook = this->outlook(members);
  constexpr uint64_t kNever = kInfinite;
  std::vector<uint64_t> cost(size_t{1} << ObjectSpec::kMaxDuties, kNever);
  cost[0] = 0;
  const auto offer = [&](std::span<const ObjectSpec::Choice> choices, uint64_t price) {
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
    return has(members.seen, name) || (name >= members.next && shape_.possible[name]);
  };
  for (uint32_t name = 0; name < shape_.spec.properties.size(); ++name) {
    if (has(members.seen, name) || !shape_.needs_only(name, may_come)) continue;
    uint64_t price = 0;
    shape_.needs_only(name, [&](uint32_t needed) { return price += !has(outlook.needed, needed), true; });
    offer(shape_.choices(name), price);
  }
  const auto names = static_cast<uint32_t>(shape_.spec.properties.size());
  for (uint32_t one = 0; one < shape_.possible_others.size() && outlook.others > 0; ++one) {
    uint64_t room = class_room(members.used, one);
    if (latest == names + one && room > 0) --room;
    for (uint64_t use = 0; use < std::min<uint64_t>(room, ObjectSpec::kMaxDuties); ++use)
      offer(shape_.choices(names + one), 1);
  }
  return cost[open] != kNever && members.count + outlook.missing + cost[open] <= shape_.spec.max;
}

bool ObjectState::may_be_name(const Members& members, const Outlook& outlook, uint32_t name) const {
  if (!shape_.possible[name] || has(members.seen, name)) return false;
  // Members that the name requires count as well, and in order only later properties can still come.
  uint64_t missing = 0, first_missing = UINT64_MAX;
  if (shape_.spec.dependents.empty()) {
    missing = outlook.missing - (has(outlook.needed, name) ? 1 : 0);
    first_missing = outlook.first_missing;
  } else {
    for (size_t word = 0; word < members.seen.size(); ++word) {
      uint64_t others = (outlook.needed[word] | shape_.closure[name][word]) & ~members.seen[word];
      if (word == name / 64) others &= ~(uint64_t{1} << (name % 64));
      if (others && first_missing == UINT64_MAX)
        first_missing = 64 * word + static_cast<uint64_t>(std::countr_zero(others));
      missing += static_cast<uint64_t>(std::popcount(others));
    }
  }
  if (members.count + 1 + missing > shape_.spec.max) return false;
  if (shape_.spec.in_order) {
    if (name < members.next || first_missing < name) return false;
    const uint64_t have = members.count + outlook.others;
    if (have < shape_.spec.min && have + available_from(members, name) < shape_.spec.min) return false;
  }
  return !shape_.spec.duties || some_choice_fits(with_name(members, name), name);
}

bool ObjectState::may_be_other(const Members& members, const Outlook& outlook, uint32_t one) const {
  if (outlook.others == 0 || members.count + 1 + outlook.missing > shape_.spec.max) return false;
  if (shape_.spec.in_order && (outlook.missing > 0 || members.count + outlook.others < shape_.spec.min)) return false;
  const auto names = static_cast<uint32_t>(shape_.spec.properties.size());
  return !shape_.spec.duties || some_choice_fits(with_other(members), names + one);
}

bool ObjectState::viable(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling,
                         Registers* registers) const {
  // An outline tells that some endless class of keys is open; anything else consults the register.
  if (is_endless(resolved, spelling)) return true;
  const auto contents = spelling.contents();
  if (registers) consult(*registers);
  for (size_t after = 0; after < contents.size(); ++after) {
    if (name_viable(resolved, contents[after]) || other_viable(resolved, text, spelling, after)) return true;
  }
  return false;
}

bool ObjectState::is_endless(std::span<const uint64_t> resolved, const KeySpelling& spelling) const {
  return std::ranges::any_of(spelling.contents(), [&](State content) {
    const auto& key = shape_.keys->state(content);
    if (key.other_words < KeyAutomaton::kManyWords) return false;
    if (key.classes.size() == 1) return is_open(resolved, key.classes.front());
    for (size_t i = 0; i < key.classes.size(); ++i) {
      if (key.words[i] >= KeyAutomaton::kManyWords && is_open(resolved, key.classes[i])) return true;
    }
    return false;
  });
}

bool ObjectState::name_viable(std::span<const uint64_t> resolved, State content) const {
  const auto& key = shape_.keys->state(content);
  return bits::any(open_names(resolved), key.low, key.high);
}

bool ObjectState::is_open(std::span<const uint64_t> resolved, uint32_t key_class) const {
  return open_classes(resolved)[key_class / 64] >> (key_class % 64) & 1;
}

/// True if some key of an open class is not used yet that has the content `spelling.contents()[after]` on its way.
bool ObjectState::other_viable(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling,
                               size_t after) const {
  const auto& key = shape_.keys->state(spelling.contents()[after]);
  // The text lacks a character that is being escaped: of the used keys only those count that go on with it.
  const bool plain = spelling.escape == kPlain;
  const auto leads_to = [&](Reg used) {
    return plain ? KeyText::starts_with(used, text) : KeyText::goes_on(used, text, spelling.escaped[after]);
  };
  for (size_t i = 0; i < key.classes.size(); ++i) {
    const uint32_t one = key.classes[i];
    if (!is_open(resolved, one)) continue;
    if (key.words[i] >= KeyAutomaton::kManyWords) return true;
    uint64_t used = 0;
    for (Reg list = resolved[kUsed]; list; list = UsedKeys::rest(list)) {
      used += UsedKeys::key_class(list) == one && leads_to(UsedKeys::text(list));
    }
    if (used < key.words[i] * (plain ? 1 : static_cast<uint64_t>(spelling.escaped[after].count()))) return true;
  }
  return false;
}

uint64_t ObjectState::used_with_prefix(Reg used, Reg prefix) {
  uint64_t count = 0;
  for (; used; used = UsedKeys::rest(used)) count += KeyText::starts_with(UsedKeys::text(used), prefix);
  return count;
}

bool ObjectState::is_used(Reg used, std::string_view key) {
  for (Reg list = used; list; list = UsedKeys::rest(list)) {
    if (KeyText::spells(UsedKeys::text(list), key)) return true;
  }
  return false;
}

bool ObjectState::used_any_new(Reg used) {
  while (used && !KeyText::is_any_new(UsedKeys::text(used))) used = UsedKeys::rest(used);
  return used != 0;
}

bool ObjectState::may_be_any_new(std::span<const uint64_t> resolved, const KeySpelling& spelling) const {
  const auto nameless = [&](State content) {
    return shape_.keys->state(content).low == shape_.keys->state(content).high;
  };
  if (!std::ranges::all_of(spelling.contents(), nameless)) return false;
  if (shape_.wanted_keys.empty()) return resolved[kFlags] & kOthersSuffice;
  return resolved[kOthers] <= ObjectShape::kWantedBesideUsed && !(resolved[kFlags] & kUsedAnyNew);
}

bool ObjectState::is_any_new(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling) const {
  if (!may_be_any_new(resolved, spelling) || used_with_prefix(resolved[kUsed], text) > 0) return false;
  const std::string key = KeyText::string(text);
  const auto wanted = std::ranges::lower_bound(shape_.wanted_keys, key);
  return wanted == shape_.wanted_keys.end() || !wanted->starts_with(key);
}

bool ObjectState::is_needed(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling) const {
  if (std::ranges::any_of(spelling.contents(), [&](State content) { return name_viable(resolved, content); }))
    return true;
  const std::string key = KeyText::string(text);
  for (auto at = std::ranges::lower_bound(shape_.wanted_keys, key);
       at != shape_.wanted_keys.end() && at->starts_with(key); ++at) {
    const bool is_key =
        spelling.escape == kPlain ||
        (at->size() > key.size() && may_escape(spelling.escape, static_cast<uint8_t>((*at)[key.size()])));
    if (is_key && !is_used(resolved[kUsed], *at)) return true;
  }
  return false;
}

bool ObjectState::needs_no_other(const Members& members, const Outlook& outlook) const {
  return shape_.spec.dependents.empty() && needs_dependents_only(members, outlook);
}

bool ObjectState::needs_dependents_only(const Members& members, const Outlook& outlook) const {
  const uint64_t count = members.count + std::max<uint64_t>(outlook.missing, 1);
  return !shape_.spec.duties && count >= shape_.spec.min;
}

bool ObjectState::others_suffice(const Members& members, uint64_t missing) const {
  return !(shape_.spec.duties & ~members.met) && members.count + 1 + missing >= shape_.spec.min;
}

}  // namespace constrain::json
