#include "engine/bits.h"

#include <bit>

// The loader picks the version for the processor at hand.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CONSTRAIN_VECTORISED __attribute__((target_clones("arch=icelake-server", "arch=haswell", "default")))
#else
#define CONSTRAIN_VECTORISED
#endif

namespace constrain::bits {

CONSTRAIN_VECTORISED void unite(uint32_t* into, const uint32_t* from, size_t words) {
  for (size_t i = 0; i < words; ++i) into[i] |= from[i];
}

CONSTRAIN_VECTORISED size_t count(const uint32_t* from, size_t words) {
  size_t sum = 0;
  for (size_t i = 0; i < words; ++i) sum += static_cast<size_t>(__builtin_popcount(from[i]));
  return sum;
}

CONSTRAIN_VECTORISED uint64_t hash(const uint32_t* from, size_t words) {
  // Eight independent lanes, so that multiplications overlap.
  uint64_t lanes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  size_t i = 0;
  for (; i + 8 <= words; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      lanes[lane] = (lanes[lane] ^ from[i + lane]) * 0x9E3779B97F4A7C15ull;
      lanes[lane] ^= lanes[lane] >> 32;
    }
  }
  uint64_t sum = words;
  for (; i < words; ++i) sum = (sum ^ from[i]) * 0xBF58476D1CE4E5B9ull;
  for (const uint64_t lane : lanes) sum = (std::rotl(sum, 23) ^ lane) * 0x94D049BB133111EBull;
  return sum ^ sum >> 31;
}

}  // namespace constrain::bits
