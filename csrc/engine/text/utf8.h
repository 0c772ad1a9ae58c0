// Unicode scalar values and UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace constrain {

inline constexpr char32_t kLastScalar = 0x10FFFF;
inline constexpr char32_t kFirstSurrogate = 0xD800, kFirstLowSurrogate = 0xDC00, kLastSurrogate = 0xDFFF;

struct Utf8 {
  std::array<uint8_t, 4> bytes;
  size_t size;
};

Utf8 encode_utf8(char32_t scalar);

void append_utf8(std::string& text, char32_t scalar);

/// Decodes UTF-8. Throws std::invalid_argument if the text is not well formed.
std::u32string decode_utf8(std::string_view text);

/// True if a text is well-formed UTF-8 (Unicode table 3-7).
bool is_utf8(std::string_view text);

/// Decoder state: the bytes that must follow to complete a character (Unicode table 3-7).
enum class Utf8State : uint8_t { boundary, one, two, three, after_e0, after_ed, after_f0, after_f4, malformed };

struct Utf8Range {
  uint8_t first, last;  ///< on any of these bytes
  Utf8State to;
};

/// The bytes that may follow, in order.
std::span<const Utf8Range> utf8_ranges(Utf8State state);

Utf8State next_utf8(Utf8State state, uint8_t byte);

/// Bytes until the character is complete.
int missing_bytes(Utf8State state);

/// First and last character beyond ASCII with these leading bits and `more` bytes to come.
std::pair<char32_t, char32_t> scalar_range(char32_t bits, int more);

}  // namespace constrain
