// Saturating arithmetic on lengths, where "no word at all" is an infinite length.
#pragma once

#include <cstdint>
#include <limits>

namespace constrain {

inline constexpr uint64_t kInfinite = std::numeric_limits<uint64_t>::max();

/// Sum that stays infinite.
inline uint64_t add_lengths(uint64_t a, uint64_t b) { return a > kInfinite - b ? kInfinite : a + b; }

/// Length of `count` words; infinite on overflow.
inline uint64_t multiply_lengths(uint64_t count, uint64_t length) {
  return count > 0 && length > kInfinite / count ? kInfinite : count * length;
}

}  // namespace constrain
