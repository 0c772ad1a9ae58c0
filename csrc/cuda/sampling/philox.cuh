// Counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3").
#pragma once

#include <cstdint>

namespace constrain::cuda {

// 64 random bits: the lower half of the block that `seed` as the key and `position` as the counter give.
__device__ inline uint64_t philox(uint64_t seed, uint64_t position) {
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
#pragma unroll
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return uint64_t{counter[1]} << 32 | counter[0];
}

// A number in [0, 1], rounded to the nearest double.
__device__ inline double philox_uniform(uint64_t seed, uint64_t position) {
  return __ull2double_rn(philox(seed, position)) * 0x1p-64;
}

}  // namespace constrain::cuda
