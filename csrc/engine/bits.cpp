#include "engine/bits.h"

#include <bit>

// The loader picks the version for the processor at hand.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CONSTRAIN_FOR(...) __attribute__((target_clones(__VA_ARGS__, "default")))
#else
#define CONSTRAIN_FOR(...)
#endif

namespace constrain::bits {

CONSTRAIN_FOR("avx512f", "avx2") void unite(uint32_t* into, const uint32_t* from, size_t words) {
  for (size_t i = 0; i < words; ++i) into[i] |= from[i];
}

CONSTRAIN_FOR("popcnt") size_t count(const uint32_t* from, size_t words) {
  int sum = words % 2 ? __builtin_popcount(from[words - 1]) : 0;
  for (size_t i = 0; i + 2 <= words; i += 2) sum += __builtin_popcountll(pair(from + i));
  return static_cast<size_t>(sum);
}

uint64_t hash(const uint32_t* from, size_t words) {
  // Independent lanes, so that multiplications overlap.
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  size_t i = 0;
  for (; i + 2 * kLanes <= words; i += 2 * kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = (lanes[lane] ^ pair(from + i + 2 * lane)) * 0x9E3779B97F4A7C15ull;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  uint64_t sum = words;
  for (; i < words; ++i) sum = (sum ^ from[i]) * 0xBF58476D1CE4E5B9ull;
  for (const uint64_t lane : lanes) sum = (std::rotl(sum, 23) ^ lane) * 0x94D049BB133111EBull;
  return sum ^ sum >> 31;
}

}  // namespace constrain::bits
