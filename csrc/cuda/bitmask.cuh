// Exclusion of tokens by a packed bitmask.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/types.cuh"

namespace constrain::cuda {

// Rows of logits in device memory. `stride` is in elements.
struct LogitsView {
  void* data;
  FloatType type;
  int64_t stride;
  int64_t rows;
  int64_t width;
};

// Rows of packed bits in device memory: token i is allowed where bit i % 32 of word i / 32 is set. `stride` is in
// words. `chosen`, unless null, has for each row of logits the index of its row of bits; below zero: all are allowed.
struct BitmaskView {
  const int32_t* data;
  int64_t stride;
  const int32_t* chosen;
};

// The bits of a row; null where all tokens are allowed.
__device__ __forceinline__ const int32_t* bits_of(const BitmaskView& mask, int row) {
  const int64_t chosen = !mask.data ? -1 : mask.chosen ? mask.chosen[row] : row;
  return chosen < 0 ? nullptr : mask.data + chosen * mask.stride;
}

// Queues on `stream`: logits of excluded tokens become -inf. Throws std::invalid_argument where the views cannot be
// right, std::runtime_error where CUDA refuses the launch.
void apply_bitmask(const LogitsView& logits, const BitmaskView& bits, cudaStream_t stream);

}  // namespace constrain::cuda
