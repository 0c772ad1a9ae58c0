#include "engine/automata/formats/punycode.h"

#include <algorithm>
#include <cstdint>

#include "engine/text/utf8.h"

namespace constrain {

namespace {

constexpr uint64_t kBase = 36, kMinThreshold = 1, kMaxThreshold = 26, kSkew = 38, kDamp = 700, kFirstBias = 72;
constexpr char32_t kFirstScalar = 0x80;

/// Section 6.1.
uint64_t adapted(uint64_t delta, uint64_t characters, bool first) {
  delta = first ? delta / kDamp : delta / 2;
  delta += delta / characters;
  uint64_t steps = 0;
  for (; delta > (kBase - kMinThreshold) * kMaxThreshold / 2; steps += kBase) delta /= kBase - kMinThreshold;
  return steps + (kBase - kMinThreshold + 1) * delta / (delta + kSkew);
}

uint64_t threshold(uint64_t position, uint64_t bias) {
  return position <= bias ? kMinThreshold : std::min(position - bias, kMaxThreshold);
}

char digit_of(uint64_t value) { return static_cast<char>(value < 26 ? 'a' + value : '0' + (value - 26)); }

/// Value of a digit; kBase for a hyphen.
uint64_t value_of(char digit) {
  if (digit == '-') return kBase;
  return static_cast<uint64_t>(digit >= 'a' ? digit - 'a' : digit - '0' + 26);
}

void append_number(std::string& out, uint64_t number, uint64_t bias) {
  for (uint64_t position = kBase;; position += kBase) {
    const uint64_t low = threshold(position, bias);
    if (number < low) break;
    out += digit_of(low + (number - low) % (kBase - low));
    number = (number - low) / (kBase - low);
  }
  out += digit_of(number);
}

/// Reads a number at the start of `text`, and removes it; nullopt if it does not end or is too large.
std::optional<uint64_t> take_number(std::string_view& text, uint64_t bias) {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  uint64_t number = 0, weight = 1;
  for (uint64_t position = kBase; !text.empty(); position += kBase) {
    const uint64_t digit = value_of(text.front()), low = threshold(position, bias);
    text.remove_prefix(1);
    if (digit == kBase || weight > kMost) return std::nullopt;
    number += digit * weight;
    if (number > kMost) return std::nullopt;
    if (digit < low) return number;
    weight *= kBase - low;
  }
  return std::nullopt;
}

}  // namespace

std::string encode_punycode(std::u32string_view label) {
  std::string out;
  for (const char32_t scalar : label) {
    if (scalar < kFirstScalar) out += static_cast<char>(scalar);
  }
  const size_t basic = out.size();
  if (basic > 0) out += '-';
  uint64_t bias = kFirstBias, delta = 0, done = basic;
  for (char32_t next = kFirstScalar; done < label.size(); ++next) {
    char32_t least = kLastScalar;
    for (const char32_t scalar : label) {
      if (scalar >= next) least = std::min(least, scalar);
    }
    delta += (least - next) * (done + 1);
    next = least;
    for (const char32_t scalar : label) {
      if (scalar < next) ++delta;
      if (scalar != next) continue;
      append_number(out, delta, bias);
      bias = adapted(delta, done + 1, done == basic);
      delta = 0;
      ++done;
    }
    ++delta;
  }
  return out;
}

std::optional<std::u32string> decode_punycode(std::string_view text) {
  const size_t hyphen = text.rfind('-');
  const size_t basic = hyphen == std::string_view::npos ? 0 : hyphen;
  std::u32string label(text.begin(), text.begin() + static_cast<ptrdiff_t>(basic));
  text.remove_prefix(basic > 0 ? basic + 1 : 0);
  uint64_t bias = kFirstBias, at = 0;
  char32_t scalar = kFirstScalar;
  while (!text.empty()) {
    const auto delta = take_number(text, bias);
    if (!delta) return std::nullopt;
    const uint64_t characters = label.size() + 1;
    bias = adapted(*delta, characters, label.size() == basic);
    at += *delta;
    if (scalar + at / characters > kLastScalar) return std::nullopt;
    scalar += static_cast<char32_t>(at / characters);
    at %= characters;
    label.insert(label.begin() + static_cast<ptrdiff_t>(at++), scalar);
  }
  return label;
}

}  // namespace constrain
