#include "engine/json/string_rule.h"

#include <algorithm>
#include <string_view>

namespace constrain::json {

namespace {

constexpr std::string_view kHex = "0123456789abcdefABCDEF";

void any_of(std::string_view bytes, Local target, Expansion& out) {
  for (const char byte : bytes) out.byte(static_cast<uint8_t>(byte), target);
}

}  // namespace

void StringRule::expand(Local state, const Lengths&, Expansion& out) {
  switch (state) {
    case kStart:
      return out.byte('"', kBody);
    case kBody:
      return expand_body(out);
    case kEnd:
      out.accepting = true;
      return;
    default:
      return state < kEscape ? expand_character(state, out) : expand_escape(state, out);
  }
}

void StringRule::expand_body(Expansion& out) const {
  const Guard count = counts() ? kCount : 0;
  out.range(0x20, '"' - 1, kBody, count);
  out.range('"' + 1, '\\' - 1, kBody, count);
  out.range('\\' + 1, 0x7F, kBody, count);
  out.range(0xC2, 0xDF, kOne, count);
  out.byte(0xE0, kAfterE0, count);
  out.range(0xE1, 0xEC, kTwo, count);
  out.byte(0xED, kAfterED, count);
  out.range(0xEE, 0xEF, kTwo, count);
  out.byte(0xF0, kAfterF0, count);
  out.range(0xF1, 0xF3, kThree, count);
  out.byte(0xF4, kAfterF4, count);
  out.byte('\\', kEscape, count);
  out.byte('"', kEnd, min_ > 0 ? kClose : 0);
}

/// Continuation bytes.
void StringRule::expand_character(Local state, Expansion& out) {
  switch (state) {
    case kOne:
      return out.range(0x80, 0xBF, kBody);
    case kTwo:
      return out.range(0x80, 0xBF, kOne);
    case kThree:
      return out.range(0x80, 0xBF, kTwo);
    case kAfterE0:
      return out.range(0xA0, 0xBF, kOne);
    case kAfterED:
      return out.range(0x80, 0x9F, kOne);
    case kAfterF0:
      return out.range(0x90, 0xBF, kTwo);
    default:
      return out.range(0x80, 0x8F, kTwo);
  }
}

void StringRule::expand_escape(Local state, Expansion& out) {
  switch (state) {
    case kEscape:
      any_of("\"\\/bfnrt", kBody, out);
      return out.byte('u', kHex4);
    case kHex4:
      any_of("0123456789abcefABCEF", kHex3, out);
      return any_of("dD", kHex3AfterD, out);
    case kHex3AfterD:
      any_of("01234567", kHex2, out);
      return any_of("89abAB", kHigh2, out);
    case kHex3:
      return any_of(kHex, kHex2, out);
    case kHex2:
      return any_of(kHex, kHex1, out);
    case kHigh2:
      return any_of(kHex, kHigh1, out);
    case kHigh1:
      return any_of(kHex, kLowEscape, out);
    case kLowEscape:
      return out.byte('\\', kLowU);
    case kLowU:
      return out.byte('u', kLow4);
    case kLow4:
      return any_of("dD", kLow3, out);
    case kLow3:
      return any_of("cdefCDEF", kLow2, out);
    case kLow2:
      return any_of(kHex, kLow1, out);
    default:
      return any_of(kHex, kBody, out);
  }
}

bool StringRule::apply(Guard guard, uint8_t, Reg& reg, Registers&) const {
  if (guard == kClose) return reg >= min_;
  if (reg == max_) return false;
  // Without a maximum, counting beyond the minimum would multiply states.
  if (max_ != kNoMaximum || reg < min_) ++reg;
  return true;
}

WildcardRegion StringRule::wildcard_region(Local state, Reg reg) {
  if (state != kBody) return {};
  WildcardRegion text{CharacterClass::plain(), max_ == kNoMaximum ? WildcardRegion::kUnbounded : max_ - reg, true, {}};
  text.leaving.add('"'), text.leaving.add('\\');
  return text;
}

bool StringRule::describe(Local, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  out.push_back(max_ == kNoMaximum ? horizon + 1 : std::min(max_ - reg, horizon + 1));
  out.push_back(min_ > reg ? std::min(min_ - reg, horizon + 1) : 0);
  return true;
}

uint64_t StringRule::count_values(Local state, Reg reg, const ParseTable&) {
  if (state == kEnd) return 1;
  if (max_ == kNoMaximum) return kManyValues;
  constexpr uint64_t kScalars[] = {1, 1'000'000, 1'000'000'000'000, kManyValues};
  return kScalars[std::min<uint64_t>(max_ - reg, 3)];
}

ByteSet StringRule::likely_bytes(Local state, Reg reg) {
  return state == kBody && reg >= min_ ? ByteSet::range('"', '"') : ByteSet::all();
}

uint64_t StringRule::remaining(Local state, Reg reg, const Lengths&) {
  // Bytes until the scalar value under way is complete, by state.
  static constexpr uint8_t kToBody[kStates] = {0, 0, 1, 2, 3, 2, 2, 3, 3, 1, 4, 3, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  if (state == kEnd) return 0;
  const uint64_t missing = reg < min_ ? min_ - reg : 0;
  return add_lengths((state == kStart ? 1 : 0) + kToBody[state] + 1, missing);
}

}  // namespace constrain::json
