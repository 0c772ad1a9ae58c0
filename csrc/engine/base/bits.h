// Loops over packed bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace constrain::bits {

inline void set(uint32_t* mask, size_t bit) { mask[bit / 32] |= 1u << (bit % 32); }

/// Calls `visit` with the indices of the set bits, in order. `word(i)` returns the word of bits 32 i and up.
template <class Word, class Visit>
void for_each(size_t words, const Word& word, const Visit& visit) {
  for (size_t i = 0; i < words; i += 2) {
    uint64_t both = word(i) | (i + 1 < words ? uint64_t{word(i + 1)} << 32 : 0);
    for (; both; both &= both - 1) visit(32 * i + static_cast<size_t>(std::countr_zero(both)));
  }
}

}  // namespace constrain::bits
