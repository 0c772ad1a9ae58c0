#include "engine/text/utf8.h"

#include <algorithm>
#include <stdexcept>

namespace constrain {

Utf8 encode_utf8(char32_t scalar) {
  auto tail = [&](int shift) { return static_cast<uint8_t>(0x80 | ((scalar >> shift) & 0x3F)); };
  if (scalar < 0x80) return {{static_cast<uint8_t>(scalar)}, 1};
  if (scalar < 0x800) return {{static_cast<uint8_t>(0xC0 | (scalar >> 6)), tail(0)}, 2};
  if (scalar < 0x10000) return {{static_cast<uint8_t>(0xE0 | (scalar >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | (scalar >> 18)), tail(12), tail(6), tail(0)}, 4};
}

void append_utf8(std::string& text, char32_t scalar) {
  const Utf8 encoded = encode_utf8(scalar);
  text.append(encoded.bytes.begin(), encoded.bytes.begin() + encoded.size);
}

std::u32string decode_utf8(std::string_view text) {
  static constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  std::u32string scalars;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
    if (size == 0 || at + size > text.size()) throw std::invalid_argument("text is not UTF-8");
    char32_t scalar = size == 1 ? lead : lead & (0x7F >> size);
    for (size_t i = 1; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(text[at + i]);
      if ((byte & 0xC0) != 0x80) throw std::invalid_argument("text is not UTF-8");
      scalar = (scalar << 6) | (byte & 0x3F);
    }
    const bool surrogate = scalar >= kFirstSurrogate && scalar <= kLastSurrogate;
    if (scalar < kSmallest[size] || scalar > kLastScalar || surrogate) {
      throw std::invalid_argument("text is not UTF-8");
    }
    scalars.push_back(scalar);
    at += size;
  }
  return scalars;
}

bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = byte(i), second = byte(i + 1);
    const size_t size = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (size == 0) return false;
    for (size_t k = 1; k < size; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    // The second byte reveals overlong encodings, surrogates, and values beyond the last scalar.
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += size;
  }
  return true;
}

std::span<const Utf8Range> utf8_ranges(Utf8State state) {
  using enum Utf8State;
  static constexpr Utf8Range kBoundary[] = {{0x00, 0x7F, boundary}, {0xC2, 0xDF, one},      {0xE0, 0xE0, after_e0},
                                            {0xE1, 0xEC, two},      {0xED, 0xED, after_ed}, {0xEE, 0xEF, two},
                                            {0xF0, 0xF0, after_f0}, {0xF1, 0xF3, three},    {0xF4, 0xF4, after_f4}};
  static constexpr Utf8Range kWithin[] = {{0x80, 0xBF, boundary}, {0x80, 0xBF, one}, {0x80, 0xBF, two},
                                          {0xA0, 0xBF, one},      {0x80, 0x9F, one}, {0x90, 0xBF, two},
                                          {0x80, 0x8F, two}};
  if (state == boundary) return kBoundary;
  if (state == malformed) return {};
  return std::span(kWithin).subspan(static_cast<size_t>(state) - 1, 1);
}

Utf8State next_utf8(Utf8State state, uint8_t byte) {
  for (const Utf8Range& range : utf8_ranges(state)) {
    if (byte <= range.last) return byte >= range.first ? range.to : Utf8State::malformed;
  }
  return Utf8State::malformed;
}

int missing_bytes(Utf8State state) {
  static constexpr int kMissing[] = {0, 1, 2, 3, 2, 2, 3, 3, 0};
  return kMissing[static_cast<size_t>(state)];
}

std::pair<char32_t, char32_t> scalar_range(char32_t bits, int more) {
  // Smaller values have shorter encodings.
  static constexpr char32_t kFirst[] = {0x80, 0x80, 0x800, 0x10000};
  const char32_t first = bits << (6 * more), rest = (char32_t{1} << (6 * more)) - 1;
  return {std::max(first, kFirst[more]), first | rest};
}

}  // namespace constrain
