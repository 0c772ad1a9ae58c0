#include "engine/json/object_rule.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "engine/compiled_grammar.h"

namespace constrain::json {

namespace {

// Progress in an escape: none, `\`, `\u`, `\u0`, `\u00`, `\u000`, `\u001`.
enum : uint32_t { kPlain, kBackslash, kU, kU0, kU00, kU000, kU001 };

// Keys are spelled with the escapes that JSON requires and no others, so that a key has one spelling.
constexpr std::string_view kShortLetters = "\"\\bfnrt", kShortBytes = "\"\\\b\f\n\r\t";
/// Stands for any key that was not used before: a byte that no text has.
constexpr uint8_t kAnyNew = 0xFF;

constexpr std::string_view kHexDigits = "0123456789abcdef";

uint8_t short_escape(uint8_t letter) {
  return static_cast<uint8_t>(kShortBytes[kShortLetters.find(static_cast<char>(letter))]);
}
uint8_t hex_value(uint8_t digit) { return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10; }
bool has_short_escape(uint8_t byte) { return kShortBytes.find(static_cast<char>(byte)) != std::string_view::npos; }

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

ObjectRule::ObjectRule(ObjectSpec spec, Whitespace whitespace) : spec_(std::move(spec)), whitespace_(whitespace) {
  for (const auto& others : spec_.others) cheapest_.emplace_back(others.keys);
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    closure_.emplace_back(Members::words(spec_.properties.size()));
    insert(closure_.back(), name);
    close_under_dependents(closure_.back());
  }
}

std::vector<RuleId> ObjectRule::callees() const {
  std::vector<RuleId> all;
  for (const auto& property : spec_.properties) {
    for (const auto& choice : property.choices) all.push_back(choice.value);
  }
  for (const auto& others : spec_.others) {
    for (const auto& choice : others.choices) all.push_back(choice.value);
  }
  return all;
}

void ObjectRule::prepare(const CompiledGrammar&, const Lengths& lengths) {
  possible_.clear(), possible_others_.clear(), texts_.clear(), spellings_.clear(), spelling_ids_.clear(),
      escaping_.clear();
  const auto drop_empty = [&](std::vector<ObjectSpec::Choice>& choices) {
    std::erase_if(choices, [&](const auto& choice) { return lengths[choice.value] == kInfinite; });
  };
  std::vector<std::string> names;
  for (auto& property : spec_.properties) {
    names.push_back(property.name);
    drop_empty(property.choices);
  }
  for (uint32_t name = 0; name < names.size(); ++name) {
    possible_.push_back(needs_only(name, [&](uint32_t needed) { return !spec_.properties[needed].choices.empty(); }));
  }
  std::vector<AutomatonPtr> classes;
  for (uint32_t i = 0; i < spec_.others.size(); ++i) {
    drop_empty(spec_.others[i].choices);
    if (spec_.others[i].choices.empty() || is_empty(*spec_.others[i].keys)) continue;
    possible_others_.push_back(i);
    classes.push_back(spec_.others[i].keys);
  }
  for (uint32_t one = 0; one < classes.size(); ++one) {
    // Where so many keys go on from each state, whatever is typed on the way to one is the beginning of some new key.
    const auto many = [this, one](State at) { return keys_->class_words(one, at) >= KeyAutomaton::kManyWords; };
    const auto row = [keys = classes[one]](State at) -> const StateRow& { return keys->row(at); };
    texts_.emplace_back(row, many, [](State) { return false; });
  }
  keys_ = std::make_unique<KeyAutomaton>(std::move(names), std::move(classes));
  intern_spelling(keys_->start(), kPlain);
  place_.resize(spec_.properties.size());
  for (uint32_t at = 0; at < place_.size(); ++at) place_[keys_->sorted()[at]] = at;
  Members none;
  none.seen.resize(names_words());
  first_ = settle(none);
  first_.insert(first_.begin(), first_.size());
}

const std::vector<ObjectSpec::Choice>& ObjectRule::choices(uint32_t label) const {
  const size_t names = spec_.properties.size();
  return label < names ? spec_.properties[label].choices : spec_.others[possible_others_[label - names]].choices;
}

void ObjectRule::close_under_dependents(std::vector<uint64_t>& names) const {
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [name, needed] : spec_.dependents) {
      if (!has(names, name) || has(names, needed)) continue;
      insert(names, needed);
      grew = true;
    }
  }
}

// ---- States.

Guard ObjectRule::space(uint32_t run, bool inner) const {
  const bool asks = whitespace_.indents() && run > 1;
  return asks ? guard(Test::space, WhitespaceRun::spaces(run) << 1 | inner) : 0;
}

Guard ObjectRule::line(Test test, Test otherwise, uint32_t run) const {
  return whitespace_.indents() ? guard(test, WhitespaceRun::spaces(run)) : guard(otherwise);
}

void ObjectRule::expand(Local state, const Lengths&, Expansion& out) {
  using Slot = Whitespace::Slot;
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, operand = static_cast<uint32_t>(state >> 32);
  const auto start_key = [&](Slot slot) {
    if (whitespace_.may_end(slot, run)) out.byte('"', encode(Phase::key, 0, 0), line(Test::next_line, Test::key, run));
  };
  switch (phase) {
    case Phase::start:
      return out.byte('{', encode(Phase::open));
    case Phase::open:
      for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) {
        const Guard first = whitespace_.indents() && run == 0 ? guard(Test::member) : space(to, true);
        out.byte(byte, encode(Phase::open, to), first);
      }
      start_key(Slot::opening);
      if (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run)) {
        out.byte('}', encode(Phase::end), guard(Test::close));
      }
      return;
    case Phase::next:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run))
        out.byte(byte, encode(Phase::next, to), space(to, true));
      return start_key(Slot::item);
    case Phase::key:
      return expand_key(operand, out);
    case Phase::colon_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run))
        out.byte(byte, encode(Phase::colon_before, to, operand));
      return out.byte(':', encode(Phase::colon, 0, operand));
    case Phase::colon:
      for (const auto [byte, to] : whitespace_.next(Slot::value, run))
        out.byte(byte, encode(Phase::colon, to, operand));
      if (!whitespace_.may_end(Slot::value, run)) return;
      for (const auto& choice : choices(operand)) {
        out.call(choice.value, encode(Phase::after), spec_.duties ? guard(Test::value, choice.duties) : 0);
      }
      return;
    case Phase::after:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, 0)) {
        out.byte(byte, encode(Phase::closing, to), guard(Test::close));
      }
      for (const auto [byte, to] : whitespace_.next(Slot::before, 0)) {
        out.byte(byte, encode(Phase::comma_before, to), guard(Test::member));
      }
      if (whitespace_.may_end(Slot::closing, 0)) out.byte('}', encode(Phase::end), guard(Test::close));
      return out.byte(',', encode(Phase::next), guard(Test::member));
    case Phase::comma_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run)) out.byte(byte, encode(Phase::comma_before, to));
      return out.byte(',', encode(Phase::next));
    case Phase::closing:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, run))
        out.byte(byte, encode(Phase::closing, to), space(to, false));
      if (whitespace_.may_end(Slot::closing, run))
        out.byte('}', encode(Phase::end), line(Test::last_line, Test::none, run));
      return;
    case Phase::end:
      out.accepting = true;
  }
}

void ObjectRule::expand_key(uint32_t id, Expansion& out) {
  const Spelling at = spellings_[id];
  const StateRow& row = keys_->row(at.content);
  const auto go = [&](int first, int last, State to, uint32_t escape, Test test) {
    if (to == kDead) return;
    const uint32_t next = intern_spelling(to, escape);
    if (spellings_[next].contents.empty()) return;
    out.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last), encode(Phase::key, 0, next), guard(test, next));
  };
  switch (at.escape) {
    case kPlain: {
      const auto raw = [&](int begin, int end) {
        for (int first = begin, last; first < end; first = last + 1) {
          for (last = first; last + 1 < end && row[last + 1] == row[first];) ++last;
          go(first, last, row[first], kPlain, Test::key_raw);
        }
      };
      raw(0x20, '"'), raw('"' + 1, '\\'), raw('\\' + 1, 256);
      go('\\', '\\', with_same_escapes(at.content), kBackslash, Test::key);
      const auto& key = keys_->state(at.content);
      if (key.name || key.key_class) {
        const uint32_t label = key.name ? *key.name : static_cast<uint32_t>(spec_.properties.size()) + *key.key_class;
        out.byte('"', encode(Phase::colon_before, 0, label), guard(Test::key_end, label));
      }
      return;
    }
    case kBackslash:
      for (const char letter : kShortLetters) {
        go(letter, letter, row[short_escape(static_cast<uint8_t>(letter))], kPlain, Test::key_short);
      }
      return go('u', 'u', at.content, kU, Test::key);
    case kU:
      return go('0', '0', at.content, kU0, Test::key);
    case kU0:
      return go('0', '0', at.content, kU00, Test::key);
    case kU00:
      go('0', '0', at.content, kU000, Test::key);
      return go('1', '1', at.content, kU001, Test::key);
    default: {
      const bool high = at.escape == kU001;
      for (uint8_t digit = 0; digit < 16; ++digit) {
        const uint8_t byte = high ? 0x10 | digit : digit;
        if (has_short_escape(byte)) continue;
        const Test test = high ? Test::key_high : Test::key_low;
        const int lower = kHexDigits[digit];
        go(lower, lower, row[byte], kPlain, test);
        if (digit > 9) go(lower - 'a' + 'A', lower - 'a' + 'A', row[byte], kPlain, test);
      }
    }
  }
}

/// The first content met from which the escapes lead to the same: few names have any, so that most need no states of
/// their own for them.
State ObjectRule::with_same_escapes(State content) {
  const StateRow& row = keys_->row(content);
  std::vector<State> after(row.begin(), row.begin() + 0x20);
  for (const char byte : kShortBytes) after.push_back(row[static_cast<uint8_t>(byte)]);
  return escaping_.try_emplace(std::move(after), content).first->second;
}

uint32_t ObjectRule::intern_spelling(State content, uint32_t escape) {
  const auto [it, added] =
      spelling_ids_.try_emplace(uint64_t{content} << 3 | escape, static_cast<uint32_t>(spellings_.size()));
  if (!added) return it->second;
  Spelling made{content, escape, {}};
  const auto complete = [&](uint8_t byte) {
    const State to = keys_->row(content)[byte];
    if (to != kDead && std::find(made.contents.begin(), made.contents.end(), to) == made.contents.end()) {
      made.contents.push_back(to);
    }
  };
  if (escape == kPlain) made.contents.push_back(content);
  if (escape == kBackslash) {
    for (const char byte : kShortBytes) complete(static_cast<uint8_t>(byte));
  }
  for (uint8_t byte = 0; byte < 0x20 && escape != kPlain; ++byte) {
    const bool other_half = (escape == kU000 && byte >= 0x10) || (escape == kU001 && byte < 0x10);
    if (!has_short_escape(byte) && !other_half) complete(byte);
  }
  spellings_.grow() = std::move(made);
  return it->second;
}

// ---- Registers.

/// A text as a list of its bytes, last one first.
struct ObjectRule::Text {
  enum : size_t { kRest, kByte, kLength, kHash, kWords };

  static uint64_t length(Reg text) { return text ? Registers::words(text)[kLength] : 0; }
  static uint64_t hash(Reg text) { return text ? Registers::words(text)[kHash] : 0; }
  static Reg rest(Reg text) { return Registers::words(text)[kRest]; }

  static Reg append(Reg text, uint8_t byte, Registers& registers) {
    const uint64_t hash = (Text::hash(text) ^ (byte + 1)) * 0x9FB21C651E98DF25ull;
    return registers.make(std::array<uint64_t, kWords>{text, byte, length(text) + 1, hash ^ hash >> 29});
  }

  static bool equal(Reg a, Reg b) {
    if (hash(a) != hash(b) || length(a) != length(b)) return false;
    for (; a != b; a = rest(a), b = rest(b)) {
      if (Registers::words(a)[kByte] != Registers::words(b)[kByte]) return false;
    }
    return true;
  }

  static bool starts_with(Reg text, Reg prefix) {
    if (length(text) < length(prefix)) return false;
    while (length(text) > length(prefix)) text = rest(text);
    return equal(text, prefix);
  }

  static std::string string(Reg text) {
    std::string out;
    for (; text; text = rest(text)) out += static_cast<char>(Registers::words(text)[kByte]);
    std::reverse(out.begin(), out.end());
    return out;
  }
};

/// The other keys of an object so far, as a list, last one first.
struct ObjectRule::UsedKeys {
  enum : size_t { kRest, kText, kHash, kWords };

  static uint64_t hash(Reg list) { return list ? Registers::words(list)[kHash] : 0; }
  static Reg rest(Reg list) { return Registers::words(list)[kRest]; }
  static Reg text(Reg list) { return Registers::words(list)[kText]; }

  static Reg append(Reg list, Reg text, Registers& registers) {
    const uint64_t hash = (UsedKeys::hash(list) ^ Text::hash(text) ^ Text::length(text)) * 0xD6E8FEB86659FD93ull + 1;
    return registers.make(std::array<uint64_t, kWords>{list, text, hash ^ hash >> 32});
  }
};

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
  if (needs_no_other(members, outlook)) words[kFlags] |= kNeedsNoOther;
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
      return has_flag(kMayGoOn);
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
  if (recorded) {
    const uint8_t content = test == Test::key_raw     ? byte
                            : test == Test::key_short ? short_escape(byte)
                            : test == Test::key_low   ? hex_value(byte)
                                                      : 0x10 | hex_value(byte);
    text = Text::append(text, content, registers);
    const bool by_end = registers.only_endings && registers.nesting == 0;
    if (by_end && is_any_new(Registers::words(members), text, spelling)) {
      text = Text::append(0, kAnyNew, registers);
    }
  }
  if (!viable(Registers::words(members), text, spelling, &registers)) return false;
  reg = text ? registers.make(std::array<uint64_t, 3>{kSpelling, members, text}) : members;
  return true;
}

/// For how the object ends it does not matter which key is being spelled: it is no name and no used key, nor is one
/// ahead, and no other keys will be needed, which it could keep from being new.
bool ObjectRule::is_any_new(std::span<const uint64_t> settled, Reg text, const Spelling& spelling) const {
  const auto nameless = [&](State content) { return keys_->state(content).low == keys_->state(content).high; };
  return settled[kFlags] & kNeedsNoOther && std::ranges::all_of(spelling.contents, nameless) &&
         used_with_prefix(settled[kUsed], text) == 0;
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
      if (!Text::equal(UsedKeys::text(list), text)) continue;
      registers.indescribable |= text && Registers::words(text)[Text::kByte] == kAnyNew;
      return false;
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
  const auto endless = [&](State content) { return keys_->state(content).other_words >= KeyAutomaton::kManyWords; };
  const auto other = [&](State content) { return other_viable(settled, text, content); };
  // That some endless set of keys is open, outlines tell; the rest has to be looked up.
  if (std::ranges::any_of(spelling.contents, [&](State content) { return endless(content) && other(content); })) {
    return true;
  }
  if (registers) registers->consult(this);
  return std::ranges::any_of(spelling.contents,
                             [&](State content) { return name_viable(settled, content) || other(content); });
}

bool ObjectRule::name_viable(std::span<const uint64_t> settled, State content) const {
  const auto& key = keys_->state(content);
  return any_bit(settled.subspan(kSets + names_words()), key.low, key.high);
}

bool ObjectRule::other_viable(std::span<const uint64_t> settled, Reg text, State content) const {
  const auto& key = keys_->state(content);
  const auto open = settled.subspan(kSets + 2 * names_words());
  const bool possible = std::any_of(key.classes.begin(), key.classes.end(),
                                    [&](uint32_t one) { return open[one / 64] >> (one % 64) & 1; });
  if (!possible || key.other_words >= KeyAutomaton::kManyWords) return possible;
  return used_with_prefix(settled[kUsed], text) < key.other_words;
}

uint64_t ObjectRule::used_with_prefix(Reg used, Reg prefix) {
  uint64_t count = 0;
  for (; used; used = UsedKeys::rest(used)) count += Text::starts_with(UsedKeys::text(used), prefix);
  return count;
}

bool ObjectRule::is_used(const Members& members, const std::string& key) const {
  if (std::find(members.planned.begin(), members.planned.end(), key) != members.planned.end()) return true;
  for (Reg list = members.used; list; list = UsedKeys::rest(list)) {
    if (Text::string(UsedKeys::text(list)) == key) return true;
  }
  return false;
}

bool ObjectRule::is_name(const std::string& key) const {
  return std::any_of(spec_.properties.begin(), spec_.properties.end(),
                     [&](auto& property) { return property.name == key; });
}

FreeText ObjectRule::free_text(Local state, Reg reg) {
  if (static_cast<Phase>(state & 0xF) != Phase::key || spellings_[state >> 32].escape != kPlain) return {};
  const auto words = members_of(reg);
  const State content = spellings_[state >> 32].content;
  const auto open = words.subspan(kSets + 2 * names_words());
  FreeText best;
  for (const uint32_t one : keys_->state(content).classes) {
    if (!(open[one / 64] >> (one % 64) & 1)) continue;
    const FreeText& text = texts_[one].from(keys_->class_state(content, one));
    const auto worth = [](const FreeText& a) {
      return std::pair(std::min(a.room, FreeTextFinder::kHorizon), a.characters.count());
    };
    if (worth(text) > worth(best)) best = text;
  }
  // Names and keys of other classes may go on with anything else.
  best.exact = false;
  best.leaving = {};
  for (int byte = 0x20; byte < 256; ++byte) {
    const bool within =
        byte < 0x80 ? best.characters.ascii.has(static_cast<uint8_t>(byte)) : best.characters.beyond_ascii;
    if (!within) best.leaving.add(static_cast<uint8_t>(byte));
  }
  return best;
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
  out.push_back(Text::length(members.key));
  out.push_back(Text::hash(members.key));
  return true;
}

// ---- Shortest completions.

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
        if (is_used(members, key) || is_name(key)) continue;
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
  const Spelling& at = spellings_[id];
  static constexpr uint64_t kEscapeRest[] = {0, 1, 4, 3, 2, 1, 1};
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
  for (const State content : at.contents) {
    const auto& key = keys_->state(content);
    for (uint32_t i = key.low; i < key.high; ++i) {
      const uint32_t name = keys_->sorted()[i];
      if (!may_be_name(members, outlook, name)) continue;
      if (plain) {
        const uint64_t counted = has(outlook.needed, name) ? missing_length(name, lengths) : 0;
        best = std::min(best, add_lengths(member_length(name, key.length, lengths), needed - counted));
        continue;
      }
      const auto& property = spec_.properties[name];
      consider(spelled_length(std::string_view(property.name).substr(key.length)) + 2, with_name(members, name),
               property.choices);
    }
    for (const uint32_t one : key.classes) {
      if (!may_be_other(members, outlook, one)) continue;
      const uint32_t others = possible_others_[one];
      std::vector<State> states(spec_.others.size(), kDead);
      states[others] = keys_->class_state(content, one);
      const auto keys = other_keys(members, Text::string(members.key), states, 1, 0, lengths);
      if (keys.empty()) continue;
      Members after = with_other(members);
      after.planned.push_back(keys.front().key);
      const uint64_t typed = Text::string(members.key).size();
      consider(spelled_length(std::string_view(keys.front().key).substr(typed)) + 2, after,
               spec_.others[others].choices);
    }
  }
  return add_lengths(best, kEscapeRest[at.escape]);
}

/// No member is needed, after the next one, but those that are missing now.
bool ObjectRule::needs_no_other(const Members& members, const Outlook& outlook) const {
  const uint64_t count = members.count + std::max<uint64_t>(outlook.missing, 1);
  return !spec_.duties && spec_.dependents.empty() && count >= spec_.min;
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

uint64_t ObjectRule::growth(Local state, Reg reg, const Lengths& lengths) {
  // The spaces of lines are no part of lengths, so that nothing follows for the bytes.
  if (whitespace_.indents()) return kInfinite;
  const uint32_t spelling = static_cast<uint32_t>(state >> 32);
  if (static_cast<Phase>(state & 0xF) != Phase::key || spellings_[spelling].escape != kPlain) return kInfinite;
  const Members members = unpack(reg);
  const Outlook outlook = this->outlook(members);
  if (!needs_no_other(members, outlook)) return kInfinite;
  // Some words are names or used: with ten bytes to choose from, so many more bytes make enough others.
  uint64_t blocked = 0;
  for (uint64_t words = 1; words <= members.others + spec_.properties.size(); words *= 10) ++blocked;
  uint64_t worst = 0;
  for (const uint32_t one : keys_->state(spellings_[spelling].content).classes) {
    uint64_t value = kInfinite;
    for (const auto& choice : spec_.others[possible_others_[one]].choices) {
      value = std::min(value, lengths[choice.value]);
    }
    worst = std::max(worst, add_lengths(longest_rest(possible_others_[one]), value));
  }
  worst = add_lengths(worst, blocked + 2 + needed_length(members, outlook, lengths));
  const uint64_t now = key_length(members, spelling, lengths);
  return worst > now && worst != kInfinite ? worst - now : worst == kInfinite ? kInfinite : 0;
}

/// Most bytes from anywhere within a word of the class to the end of one; infinite where words are rare.
uint64_t ObjectRule::longest_rest(uint32_t others) {
  const auto [known, added] = longest_rests_.try_emplace(others, kInfinite);
  if (!added) return known->second;
  constexpr size_t kMaxStates = 64;
  constexpr int kManyBytes = 10;
  Automaton& automaton = *spec_.others[others].keys;
  std::vector<State> states{automaton.start()};
  uint64_t longest = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const StateRow& row = automaton.row(states[i]);
    int ways = 0;
    bool within_character = !automaton.accepting(states[i]);
    for (int byte = 0; byte < 256; ++byte) {
      if (row[byte] == kDead) continue;
      ways += byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\';
      within_character &= byte >= 0x80 && byte < 0xC0;
      if (std::find(states.begin(), states.end(), row[byte]) == states.end()) states.push_back(row[byte]);
    }
    if (states.size() > kMaxStates || (ways < kManyBytes && !within_character)) return kInfinite;
    longest = std::max<uint64_t>(longest, spelled_length(cheapest_[others].from(states[i], 1).front()));
  }
  return known->second = longest + 3;
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

uint64_t ObjectRule::variety(Local state, Reg reg, const CompiledGrammar& grammar) {
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
