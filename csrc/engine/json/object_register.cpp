#include <algorithm>
#include <array>
#include <span>

#include "engine/grammar/parse_table.h"
#include "engine/json/object_keys.h"
#include "engine/json/object_rule.h"

namespace constrain::json {

// What registers say of an object so far, and the guards that ask it.

ObjectRule::Members ObjectRule::unpack(Reg reg) const {
  Members members;
  members.seen.resize(names_words());
  if (!reg) return members;
  const auto words = Registers::words(reg);
  switch (words[0]) {
    case kSettled:
      members.count = words[kCount], members.next = words[kNext], members.others = words[kOthers];
      members.used = words[kUsed], members.met = words[kMet];
      std::copy_n(words.begin() + kSets, names_words(), members.seen.begin());
      return members;
    case kSpelling:
      members = unpack(words[kBase]);
      members.key = words[kKey];
      return members;
    default:
      members = unpack(words[kBase]);
      members = words[kLabel] < spec_.properties.size() ? with_name(members, static_cast<uint32_t>(words[kLabel]))
                                                        : with_other(members);
      members.used = words[kNewUsed];
      members.met |= words[kNewMet];
      return members;
  }
}

std::vector<uint64_t> ObjectRule::settle(const Members& members) const {
  std::vector<uint64_t> words(kSets + 2 * names_words() + classes_words());
  words[kCount] = members.count, words[kNext] = members.next, words[kOthers] = members.others;
  words[kUsed] = members.used, words[kMet] = members.met;
  std::copy(members.seen.begin(), members.seen.end(), words.begin() + kSets);
  const Outlook outlook = this->outlook(members);
  const std::span<uint64_t> open = std::span(words).subspan(kSets + names_words());
  const std::vector<uint32_t>& sorted = keys_->sorted();
  for (uint32_t at = 0; at < sorted.size(); ++at) {
    if (may_be_name(members, outlook, sorted[at])) open[at / 64] |= uint64_t{1} << (at % 64);
  }
  for (uint32_t one = 0; one < possible_others_.size(); ++one) {
    if (may_be_other(members, outlook, one)) open[names_words() + one / 64] |= uint64_t{1} << (one % 64);
  }
  words[kFlags] = may_close(members, outlook) ? kMayClose : 0;
  if (viable(words, 0, spellings_[0], nullptr)) words[kFlags] |= kMayGoOn;
  if (others_suffice(members, outlook)) words[kFlags] |= kOthersSuffice;
  for (Reg list = members.used; list; list = UsedKeys::rest(list)) {
    if (KeyText::is_any_new(UsedKeys::text(list))) words[kFlags] |= kUsedAnyNew;
  }
  return words;
}

/// The settled block of a register that has one.
std::span<const uint64_t> ObjectRule::members_of(Reg reg) const {
  if (!reg) return std::span<const uint64_t>(first_).subspan(1);
  const auto words = Registers::words(reg);
  return words[0] == kSpelling ? Registers::words(words[kBase]) : words;
}

Reg ObjectRule::settled(Reg reg, Registers& registers) const {
  if (!reg) return reinterpret_cast<Reg>(first_.data() + 1);
  const auto words = Registers::words(reg);
  Reg members = words[0] == kSettled ? reg : words[kBase];
  if (words[0] == kBegun) {
    std::vector<uint64_t> made = settle(unpack(reg));
    if (Registers::is_temporary(reg)) made[kFlags] |= kAhead;
    members = registers.make(made);
  }
  if (Registers::words(members)[kFlags] & kAhead) registers.consult(this);
  return members;
}

bool ObjectRule::apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
  const auto test = static_cast<Test>(guard & 0xF);
  const uint64_t operand = guard >> 4;
  const auto has_flag = [&](uint64_t flag) {
    const Reg members = settled(reg, registers);
    if (!(Registers::words(members)[kFlags] & flag)) return false;
    reg = members;
    return true;
  };
  switch (test) {
    case Test::none:
      return true;
    case Test::space:
      return operand >> 1 <= whitespace_.indent(registers.depth + (operand & 1));
    case Test::last_line:
      return operand == whitespace_.indent(registers.depth);
    case Test::next_line:
      return operand == whitespace_.indent(registers.depth + 1) && has_flag(kMayGoOn);
    case Test::close:
      return has_flag(kMayClose);
    case Test::member:
      return has_flag(kMayGoOn) && !ends_anyhow(Registers::words(reg), registers);
    case Test::value:
      return choose_value(operand, reg, registers);
    case Test::key_end:
      return end_key(static_cast<uint32_t>(operand), reg, registers);
    default:
      return spell(test, byte, spellings_[operand], reg, registers);
  }
}

bool ObjectRule::spell(Test test, uint8_t byte, const Spelling& spelling, Reg& reg, Registers& registers) const {
  const Reg members = settled(reg, registers);
  Reg text = reg && Registers::words(reg)[0] == kSpelling ? Registers::words(reg)[kKey] : 0;
  // The bytes of a key matter only where other keys are possible: those must not repeat.
  const bool recorded = test != Test::key && !possible_others_.empty();
  if (recorded && !KeyText::is_any_new(text)) {
    const uint8_t content = test == Test::key_raw     ? byte
                            : test == Test::key_short ? short_escape(byte)
                            : test == Test::key_low   ? hex_value(byte)
                                                      : 0x10 | hex_value(byte);
    text = KeyText::append(text, content, registers);
    const bool by_end = registers.only_endings && registers.nesting == 0;
    if (by_end && is_any_new(Registers::words(members), text, spelling)) text = KeyText::append(0, kAnyNew, registers);
  }
  if (Registers::words(members)[kFlags] & kUsedAnyNew && !is_needed(Registers::words(members), text, spelling)) {
    registers.indescribable = true;
    return false;
  }
  if (!viable(Registers::words(members), text, spelling, &registers)) return false;
  reg = text ? registers.make(std::array<uint64_t, 3>{kSpelling, members, text}) : members;
  return true;
}

/// Where some key stands for any new one, no members come but those that are needed: what else is new is not known.
bool ObjectRule::ends_anyhow(std::span<const uint64_t> settled, Registers& registers) {
  constexpr uint64_t kBoth = kUsedAnyNew | kMayClose;
  const bool ends = (settled[kFlags] & kBoth) == kBoth;
  registers.indescribable |= ends;
  return ends;
}

/// For how the object ends it does not matter which key is being spelled: it is no name and no used key, nor is one
/// ahead, and none that will be needed, which it could keep from being new.
bool ObjectRule::is_any_new(std::span<const uint64_t> settled, Reg text, const Spelling& spelling) const {
  const auto nameless = [&](State content) { return keys_->state(content).low == keys_->state(content).high; };
  if (!std::ranges::all_of(spelling.contents(), nameless) || used_with_prefix(settled[kUsed], text) > 0) return false;
  if (wanted_keys_.empty()) return settled[kFlags] & kOthersSuffice;
  if (settled[kOthers] > kWantedBesideUsed || settled[kFlags] & kUsedAnyNew) return false;
  const std::string key = KeyText::string(text);
  const auto wanted = std::ranges::lower_bound(wanted_keys_, key);
  return wanted == wanted_keys_.end() || !wanted->starts_with(key);
}

/// The key may become an open name, or one that shortest ends ask for. Only of these it is known that they differ from
/// a key that stands for any new one.
bool ObjectRule::is_needed(std::span<const uint64_t> settled, Reg text, const Spelling& spelling) const {
  if (std::ranges::any_of(spelling.contents(), [&](State content) { return name_viable(settled, content); }))
    return true;
  const std::string key = KeyText::string(text);
  for (auto at = std::ranges::lower_bound(wanted_keys_, key); at != wanted_keys_.end() && at->starts_with(key); ++at) {
    const bool spelled =
        spelling.escape == kPlain ||
        (at->size() > key.size() && may_escape(spelling.escape, static_cast<uint8_t>((*at)[key.size()])));
    if (spelled && !is_used(settled[kUsed], *at)) return true;
  }
  return false;
}

bool ObjectRule::end_key(uint32_t label, Reg& reg, Registers& registers) const {
  const Reg base = settled(reg, registers);
  const auto words = Registers::words(base);
  Reg used = words[kUsed];
  if (label < spec_.properties.size()) {
    registers.consult(this);
    const uint32_t at = place_[label];
    if (!(words[kSets + names_words() + at / 64] >> (at % 64) & 1)) return false;
  } else {
    const uint32_t one = label - static_cast<uint32_t>(spec_.properties.size());
    if (!(words[kSets + 2 * names_words() + one / 64] >> (one % 64) & 1)) return false;
    const Reg text = reg && Registers::words(reg)[0] == kSpelling ? Registers::words(reg)[kKey] : 0;
    if (used) registers.consult(this);
    for (Reg list = used; list; list = UsedKeys::rest(list)) {
      // Which key was finished within the text that is being looked at, no description of its start can tell.
      registers.indescribable |= registers.is_temporary(list);
      if (KeyText::equal(UsedKeys::text(list), text)) return false;
    }
    used = UsedKeys::append(used, text, registers);
  }
  reg = registers.make(std::array<uint64_t, 5>{kBegun, base, label, used, 0});
  return true;
}

bool ObjectRule::choose_value(uint64_t duties, Reg& reg, Registers& registers) const {
  Members members = unpack(reg);
  members.met |= duties;
  if (!duties_can_be_met(members)) return false;
  const auto begun = Registers::words(reg);
  reg = registers.make(std::array<uint64_t, 5>{kBegun, begun[kBase], begun[kLabel], begun[kNewUsed], duties});
  return true;
}

namespace {

/// Control characters, which no key holds as they are, and the first bytes of which all characters are in the class.
ByteSet bytes_within(const CharacterClass& characters) {
  ByteSet within = characters.ascii;
  within.add(0, 0x1F);
  if (characters.beyond_ascii && characters.excluded.empty()) within.add(0x80, 0xFF);
  return within;
}

}  // namespace

FreeText ObjectRule::free_text(Local state, Reg reg) {
  if (static_cast<Phase>(state & 0xF) != Phase::key || spellings_[state >> 32].escape != kPlain) return {};
  const auto words = members_of(reg);
  const State content = spellings_[state >> 32].content;
  const auto open = words.subspan(kSets + 2 * names_words());
  FreeText best;
  size_t classes = 0;
  for (const uint32_t one : keys_->state(content).classes) {
    if (!(open[one / 64] >> (one % 64) & 1)) continue;
    ++classes;
    const FreeText& text = texts_[one].from(keys_->class_state(content, one));
    const auto worth = [](const FreeText& a) {
      return std::pair(std::min(a.room, kWildcardHorizon), a.characters.count());
    };
    if (worth(text) > worth(best)) best = text;
  }
  best.exact = false;
  // Keys of other classes may go on with anything else, and names with their own bytes.
  if (classes > 1) best.leaving = ByteSet::all();
  best.leaving.add(name_bytes_);
  best.leaving.add('"');
  best.leaving.add('\\');
  best.leaving = best.leaving & ~bytes_within(best.characters);
  return best;
}

bool ObjectRule::pass_text(Local state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) {
  const Spelling& spelling = spellings_[state >> 32];
  if (static_cast<Phase>(state & 0xF) != Phase::key || spelling.escape != kPlain) return false;
  const auto& key = keys_->state(spelling.content);
  if (key.low != key.high || key.classes.size() != 1 || key.other_words < KeyAutomaton::kManyWords) return false;
  const uint32_t one = key.classes.front();
  if (!texts_[one].stays(keys_->class_state(spelling.content, one))) return false;
  const Reg members = settled(reg, registers);
  const auto words = Registers::words(members);
  if (words[kFlags] & kUsedAnyNew) return false;
  Reg text = reg && Registers::words(reg)[0] == kSpelling ? Registers::words(reg)[kKey] : 0;
  const bool by_end = registers.only_endings && registers.nesting == 0;
  const bool any_new = by_end && is_any_new(words, text, spelling);
  if (by_end && !any_new) return false;
  if (words[kUsed]) registers.consult(this);
  const CharacterClass& within = texts_[one].from(keys_->class_state(spelling.content, one)).characters;
  for (Reg list = words[kUsed]; list; list = UsedKeys::rest(list)) {
    if (!KeyText::starts_with(UsedKeys::text(list), text)) continue;
    const std::string rest = KeyText::string(UsedKeys::text(list)).substr(KeyText::length(text));
    const auto leaves = [&](uint8_t byte) { return byte < 0x80 ? !within.ascii.has(byte) : !within.beyond_ascii; };
    const auto end = static_cast<size_t>(std::ranges::find_if(rest, leaves) - rest.begin());
    exceptions.push_back(rest.substr(0, end) + leaving_byte(rest, end));
  }
  if (any_new) text = 0;
  reg = registers.make(std::array<uint64_t, 3>{kSpelling, members, KeyText::append(text, kAnyNew, registers)});
  return true;
}

bool ObjectRule::outline(Local, Reg reg, std::vector<uint64_t>& out) const {
  if (spec_.duties) return false;
  const bool begun = reg && Registers::words(reg)[0] == kBegun;
  const std::vector<uint64_t> made = begun ? settle(unpack(reg)) : std::vector<uint64_t>();
  const std::span<const uint64_t> words = begun ? std::span(made) : members_of(reg);
  out.push_back(words[kFlags] | (words[kUsed] ? uint64_t{1} << 63 : 0));
  const auto open = words.subspan(kSets + 2 * names_words());
  out.insert(out.end(), open.begin(), open.end());
  return true;
}

bool ObjectRule::describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  const Members members = unpack(reg);
  out.insert(out.end(), members.seen.begin(), members.seen.end());
  out.push_back(spec_.max == kInfinite ? horizon + 1 : std::min(spec_.max - members.count, horizon + 1));
  out.push_back(spec_.min > members.count ? std::min(spec_.min - members.count, horizon + 1) : 0);
  if (spec_.in_order) out.push_back(members.next);
  if (spec_.duties) out.push_back(members.met);
  if (possible_others_.empty()) return true;
  const bool many = keys_->state(keys_->start()).other_words >= KeyAutomaton::kManyWords;
  out.push_back(many ? std::min(kMaxOtherKeys - members.others, horizon + 1) : members.others);
  out.push_back(UsedKeys::hash(members.used));
  // A key that is being spelled matters for itself only as far as it may turn out to have been used.
  const bool spelling = static_cast<Phase>(state & 0xF) == Phase::key;
  if (!spelling || used_with_prefix(members.used, members.key) == 0) return true;
  out.push_back(KeyText::length(members.key));
  out.push_back(KeyText::hash(members.key));
  return true;
}

}  // namespace constrain::json
