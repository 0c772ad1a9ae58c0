// Loops over packed bits that profit from wide vector registers where the processor has them.
#pragma once

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

}  // namespace constrain::bits
