// Ranges of scalar values as the generated tables store them: numbers of seven bits a byte, the lowest bits first.
#pragma once

#include <cstdint>
#include <span>

#include "engine/text/charset.h"

namespace constrain {

/// Reads a number from the front of `data`.
inline uint32_t read_base128(std::span<const uint8_t>& data) {
  uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = data.front();
    data = data.subspan(1);
    number |= static_cast<uint32_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

/// Reads a range: the distance of its first scalar from `end`, and that of its last from its first.
inline CharSet::Range read_range(std::span<const uint8_t>& data, char32_t end) {
  const char32_t first = end + read_base128(data);
  return {first, first + read_base128(data)};
}

}  // namespace constrain
