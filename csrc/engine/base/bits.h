// Loops over packed bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace constrain::bits {

inline void set(uint32_t* mask, size_t bit) { mask[bit / 32] |= 1u << (bit % 32); }
inline void clear(uint32_t* mask, size_t bit) { mask[bit / 32] &= ~(1u << (bit % 32)); }

/// Index of the first set bit from `bit` on; 32 times their number if there is none in these words.
inline size_t next(std::span<const uint32_t> words, size_t bit) {
  size_t word = bit / 32;
  if (word >= words.size()) return 32 * words.size();
  uint32_t left = words[word] >> (bit % 32) << (bit % 32);
  while (!left) {
    if (++word == words.size()) return 32 * word;
    left = words[word];
  }
  return 32 * word + static_cast<size_t>(std::countr_zero(left));
}

/// True if some bit in [begin, end) is set.
inline bool any(std::span<const uint64_t> words, size_t begin, size_t end) {
  while (begin < end) {
    const uint64_t word = words[begin / 64] >> (begin % 64);
    if (word) return begin + static_cast<size_t>(std::countr_zero(word)) < end;
    begin = (begin / 64 + 1) * 64;
  }
  return false;
}

/// Calls `visit` with the indices of the set bits, in order. `word(i)` returns the word of bits 32 i and up.
template <class Word, class Visit>
void for_each(size_t words, const Word& word, const Visit& visit) {
  for (size_t i = 0; i < words; i += 2) {
    uint64_t both = word(i) | (i + 1 < words ? uint64_t{word(i + 1)} << 32 : 0);
    for (; both; both &= both - 1) visit(32 * i + static_cast<size_t>(std::countr_zero(both)));
  }
}

}  // namespace constrain::bits
