#include "engine/json/host_name_rule.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "engine/automata/shared_automaton.h"

namespace constrain::json {

namespace {

using namespace encoded_host_name;

/// The octets before a label, and the characters of the label.
struct Count {
  uint32_t used = 0, length = 0;
  bool international = false;

  uint32_t octets() const { return international ? kMaxLabel : length; }
  /// True if `more` characters may follow.
  bool allows(uint32_t more) const {
    return length + more <= (international ? kMaxInternational : kMaxLabel) &&
           used + (international ? kMaxLabel : length + more) <= kMaxName;
  }
};

Count count_of(Reg reg) {
  return {static_cast<uint32_t>(reg & 0xFF), static_cast<uint32_t>(reg >> 8 & 0xFF), (reg >> 16 & 1) != 0};
}

Reg encode(const Count& count) {
  return count.used | uint64_t{count.length} << 8 | static_cast<uint64_t>(count.international) << 16;
}

/// Within an A-label: the octets before it, and its text after the mark.
struct Encoded {
  uint64_t used;
  std::string text;
};

Encoded encoded_of(Reg reg) {
  const auto words = Registers::words(reg);
  Encoded encoded{words[0], std::string(words[1], '\0')};
  std::memcpy(encoded.text.data(), words.data() + 2, encoded.text.size());
  return encoded;
}

Reg store(const Encoded& encoded, Registers& registers) {
  std::array<uint64_t, 2 + kMaxLabel / 8 + 1> words{encoded.used, encoded.text.size()};
  std::memcpy(words.data() + 2, encoded.text.data(), encoded.text.size());
  return registers.make(words);
}

bool append(Reg& reg, uint8_t byte, LabelKinds kinds, Registers& registers) {
  Encoded encoded = encoded_of(reg);
  encoded.text += static_cast<char>(byte);
  if (!begins_encoded(encoded.text, kinds)) return false;
  reg = store(encoded, registers);
  return true;
}

bool end_encoded(Reg& reg, LabelKinds kinds) {
  constexpr uint32_t kMarkLength = 4;
  const Encoded encoded = encoded_of(reg);
  const auto kind = encoded_kind(encoded.text);
  if (!kind || !(kinds & bit(*kind))) return false;
  reg = encode({.used = static_cast<uint32_t>(encoded.used + kMarkLength + encoded.text.size() + 1)});
  return true;
}

/// Letters, digits and hyphens of an A-label.
WildcardRegion encoded_region(uint64_t max_length) {
  if (max_length == 0) return {};
  WildcardRegion text;
  text.max_length = max_length;
  text.characters.ascii.add('-');
  text.characters.ascii.add('0', '9');
  text.characters.ascii.add('a', 'z');
  text.leaving.add('.');
  text.leaving.add('"');
  return text;
}

}  // namespace

LabelKinds HostNameRule::kinds(Local state) const {
  const StateRow& row = names_->row(static_cast<State>(state));
  for (uint8_t i = 0; i < std::size(kMarked); ++i) {
    if (row[kFirstMark + i] != kDead) return kMarked[i];
  }
  return 0;
}

void HostNameRule::expand(Local state, const Lengths&, Expansion& out) {
  if (state == kDead) return;
  const StateRow& row = names_->row(static_cast<State>(state));
  out.accepting = names_->accepting(static_cast<State>(state));
  if (const LabelKinds kinds = this->kinds(state)) return expand_encoded(row, kinds, out);
  for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
    if (to == kDead || first >= kFirstMark) return;
    out.range(first, last, to, state == start() ? 0 : guard(row, first, to));
  });
}

Guard HostNameRule::guard(const StateRow& from, uint8_t first, State to) const {
  if (first == '"') return 0;
  if (first == '.') return kDot;
  if (first >= 0xC0) return kLead;
  if (first == '-' && kinds(to)) return kMark;
  if (first >= 0x80 && from[kLastByte] == kDead) return 0;
  const StateRow& after = names_->row(to);
  if (first >= 0x80 && after[kLabelStart] != kDead) return kDot;
  return (first >= 0x80 ? kLetter : kAscii) | (after['"'] == kDead ? kIncomplete : 0);
}

void HostNameRule::expand_encoded(const StateRow& row, LabelKinds kinds, Expansion& out) const {
  for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
    if (to != kDead && first < kFirstMark) out.range(first, last, to, kAppend | kinds << kKindsShift);
  });
  const auto end = [&](uint8_t byte, uint8_t written, LabelKinds ending) {
    if (row[byte] != kDead) out.byte(written, row[byte], kEndEncoded | ending << kKindsShift);
  };
  for (const LabelKind kind : {LabelKind::right, LabelKind::left, LabelKind::plain}) {
    end(kFirstDot + static_cast<uint8_t>(kind), '.', bit(kind));
  }
  end(kQuote, '"', kinds);
}

bool HostNameRule::apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
  const auto kinds = static_cast<LabelKinds>(guard >> kKindsShift);
  const auto action = guard & kAction;
  if (action == kAppend) return append(reg, byte, kinds, registers);
  if (action == kEndEncoded) return end_encoded(reg, kinds);
  Count count = count_of(reg);
  if (action == kMark) {
    if (count.used + kMaxLabel > kMaxName) return false;
    reg = store({count.used, ""}, registers);
    return true;
  }
  if (action == kDot) {
    count = {.used = count.used + count.octets() + 1};
    if (!count.allows(1)) return false;
  } else {
    count.international |= action != kAscii;
    if (!count.allows(action == kLead || (guard & kIncomplete) ? 2 : 1)) return false;
    if (action == kLead) return true;  // the last byte counts
    ++count.length;
  }
  reg = encode(count);
  return true;
}

WildcardRegion HostNameRule::wildcard_region(Local local, Reg reg) {
  if (kinds(local)) return encoded_region(kFreeEncoded - std::min(encoded_of(reg).text.size(), kFreeEncoded));
  WildcardRegion text = texts_.from(static_cast<State>(local));
  const Count count = count_of(reg);
  uint64_t remaining = 0;
  while (remaining < kMaxLabel && count.allows(static_cast<uint32_t>(remaining) + 2)) ++remaining;
  if (text.max_length <= remaining) return text;
  text.max_length = remaining;
  text.exact = false;
  return remaining == 0 ? WildcardRegion() : text;
}

bool HostNameRule::describe(Local local, Reg reg, uint64_t, std::vector<uint64_t>& out) const {
  if (!kinds(local)) {
    out.push_back(reg);
    return true;
  }
  const auto words = Registers::words(reg);
  out.insert(out.end(), words.begin(), words.end());
  return true;
}

uint64_t HostNameRule::remaining(Local local, Reg reg, const Lengths&) {
  if (local == kDead) return kInfinite;
  if (const LabelKinds kinds = this->kinds(local)) return rest(encoded_of(reg).text, kinds).size() + 1;
  const auto [cached, fresh] = remaining_.try_emplace(static_cast<State>(local), 0);
  if (fresh) cached->second = shortest_length(*names_, static_cast<State>(local));
  return cached->second;
}

const std::string& HostNameRule::rest(const std::string& text, LabelKinds kinds) {
  constexpr size_t kMaxRests = 4096;
  if (rests_.size() == kMaxRests) rests_.clear();
  const auto [cached, fresh] = rests_.try_emplace({text, kinds});
  if (fresh) cached->second = encoded_rest(text, kinds);
  return cached->second;
}

ByteSet HostNameRule::likely_bytes(Local local, Reg reg) {
  const LabelKinds kinds = this->kinds(local);
  if (!kinds) return ByteSet::all();
  const std::string& rest = this->rest(encoded_of(reg).text, kinds);
  const auto next = static_cast<uint8_t>(rest.empty() ? '"' : rest.front());
  return ByteSet::range(next, next);
}

uint64_t HostNameRule::max_remaining(RuleBounds&) { return names_->farthest(); }

uint64_t HostNameRule::max_to_differ(RuleBounds&) { return SharedAutomaton::kToDiffer; }

uint64_t HostNameRule::max_growth(Local, Reg, const Lengths&) { return names_->farthest(); }

/// At the start there are more names than anything counts; elsewhere a lower bound.
uint64_t HostNameRule::count_values(Local state, Reg, const ParseTable&) {
  return state == names_->start() ? kManyValues : 1;
}

}  // namespace constrain::json
