// Loops over packed bits that profit from wide vector registers where the processor has them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace constrain::bits {

/// `into |= from`, word by word.
void unite(uint32_t* into, const uint32_t* from, size_t words);

/// Number of bits set.
size_t count(const uint32_t* from, size_t words);

/// A hash of the words, for tables that compare them afterwards.
uint64_t hash(const uint32_t* from, size_t words);

inline void set(uint32_t* mask, size_t bit) { mask[bit / 32] |= 1u << (bit % 32); }

/// Two words as one.
inline uint64_t pair(const uint32_t* from) { return from[0] | uint64_t{from[1]} << 32; }

/// Calls `visit` with the numbers of the bits that are set, in order.
template <class Visit>
void for_each(const uint32_t* from, size_t words, const Visit& visit) {
  const auto visit_all = [&](uint64_t bits, size_t first) {
    for (; bits; bits &= bits - 1) visit(first + static_cast<size_t>(std::countr_zero(bits)));
  };
  size_t i = 0;
  for (; i + 2 <= words; i += 2) visit_all(pair(from + i), i * 32);
  if (i < words) visit_all(from[i], i * 32);
}

}  // namespace constrain::bits
