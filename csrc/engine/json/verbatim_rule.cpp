#include "engine/json/verbatim_rule.h"

#include <algorithm>
#include <string_view>

namespace constrain::json {

namespace {

constexpr std::string_view kLetters = "\"\\bfnrt", kMeanings = "\"\\\b\f\n\r\t";

bool has_letter(uint8_t byte) { return kMeanings.find(static_cast<char>(byte)) != std::string_view::npos; }

uint8_t digit_value(uint8_t digit) { return static_cast<uint8_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10); }

}  // namespace

void VerbatimRule::expand(Local state, const Lengths&, Expansion& out) {
  switch (state) {
    case kStart:
      return out.byte('"', kBody);
    case kBody:
      out.range(0x20, '"' - 1, kBody, kPlain);
      out.range('"' + 1, '\\' - 1, kBody, kPlain);
      out.range('\\' + 1, 0xF4, kBody, kPlain);
      out.byte('\\', kEscape, kAnyEscape);
      return out.byte('"', kEnd, kClose);
    case kEscape:
      for (const char letter : kLetters) out.byte(static_cast<uint8_t>(letter), kBody, kLetter);
      return out.byte('u', kZero, kControl);
    case kZero:
      return out.byte('0', kSecondZero);
    case kSecondZero:
      return out.byte('0', kHigh);
    case kHigh:
      out.byte('0', kLow0, kControl0);
      return out.byte('1', kLow1, kControl1);
    case kLow0:
    case kLow1:
      out.range('0', '9', kBody, state == kLow0 ? kDigit0 : kDigit1);
      return out.range('a', 'f', kBody, state == kLow0 ? kDigit0 : kDigit1);
    case kEnd:
      out.accepting = true;
  }
}

bool VerbatimRule::apply(Guard guard, uint8_t byte, Reg& reg, Registers&) const {
  switch (guard) {
    case kPlain:
      return advance(reg, byte);
    case kClose:
      return source_->is_whole(place(reg).at) && place(reg).length >= min_;
    case kLetter:
      return advance(reg, static_cast<uint8_t>(kMeanings[kLetters.find(static_cast<char>(byte))]));
    case kDigit0:
      return !has_letter(digit_value(byte)) && advance(reg, digit_value(byte));
    case kDigit1:
      return advance(reg, 0x10 + digit_value(byte));
    default:
      bool some = false;
      for_each_escaped(guard, reg, [&](uint8_t, Reg) { some = true; });
      return some;
  }
}

/// Appends a content byte; false if the string does not occur, or cannot reach a permitted length.
bool VerbatimRule::advance(Reg& reg, uint8_t byte) const {
  Place next = place(reg);
  const bool begins = (byte & 0xC0) != 0x80;
  // Without a maximum, counting beyond the minimum would multiply states.
  if (begins && next.length == max_) return false;
  if (begins && (max_ != kInfinite || next.length < min_)) ++next.length;
  next.at = source_->step(next.at, byte);
  if (next.at == SourceText::kNone || next.length + source_->characters_left(next.at) < min_) return false;
  reg = encode(next);
  return true;
}

/// Calls `use(byte, register)` for each character that the escape may become, with the register after it.
template <typename Use>
void VerbatimRule::for_each_escaped(Guard which, Reg reg, Use use) const {
  const auto consider = [&](uint8_t byte) {
    const bool control = byte < 0x20 && !has_letter(byte);
    if (which != kAnyEscape && !control) return;
    if ((which == kControl0 && byte >= 0x10) || (which == kControl1 && byte < 0x10)) return;
    Reg next = reg;
    if (advance(next, byte)) use(byte, next);
  };
  for (uint8_t byte = 0; byte < 0x20; ++byte) consider(byte);
  consider('"'), consider('\\');
}

bool VerbatimRule::describe(Local, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  const Place at = place(reg);
  out.push_back(at.at);
  if (!counts()) return true;
  out.push_back(max_ == kInfinite ? horizon + 1 : std::min(max_ - at.length, horizon + 1));
  // Whether enough text follows depends on the exact length.
  out.push_back(min_ > at.length ? min_ - at.length : 0);
  return true;
}

uint64_t VerbatimRule::remaining(Local state, Reg reg, const Lengths&) {
  switch (state) {
    case kStart:
      return source_->characters_left(SourceText::kRoot) < min_ || min_ > max_ ? kInfinite : 1 + remaining_in_body(0);
    case kBody:
      return remaining_in_body(reg);
    case kEscape:
      return remaining_in_escape(kAnyEscape, reg, 5);
    case kZero:
      return remaining_in_escape(kControl, reg, 4);
    case kSecondZero:
      return remaining_in_escape(kControl, reg, 3);
    case kHigh:
      return remaining_in_escape(kControl, reg, 2);
    case kLow0:
      return remaining_in_escape(kControl0, reg, 1);
    case kLow1:
      return remaining_in_escape(kControl1, reg, 1);
    default:
      return 0;
  }
}

/// Follows the text at the first occurrence of the string.
uint64_t VerbatimRule::remaining_in_body(Reg reg) const {
  const Place at = place(reg);
  return source_->escaped_ahead(at.at, at.length < min_ ? min_ - at.length : 0) + 1;
}

/// `control` is the number of bytes left of a `\u00xx` escape.
uint64_t VerbatimRule::remaining_in_escape(Guard which, Reg reg, uint64_t control) const {
  uint64_t best = kInfinite;
  for_each_escaped(which, reg, [&](uint8_t byte, Reg next) {
    const uint64_t escape = byte < 0x20 && !has_letter(byte) ? control : 1;
    best = std::min(best, add_lengths(escape, remaining_in_body(next)));
  });
  return best;
}

uint64_t VerbatimRule::count_values(Local state, Reg reg, const ParseTable&) {
  if (state != kStart && state != kBody) return 1;
  // One value for each length.
  const Place at = state == kStart ? Place{SourceText::kRoot, 0} : place(reg);
  const uint64_t longest = std::min(max_, at.length + source_->characters_left(at.at)),
                 shortest = std::max(min_, at.length);
  return longest < shortest ? 1 : longest - shortest + 1;
}

}  // namespace constrain::json
