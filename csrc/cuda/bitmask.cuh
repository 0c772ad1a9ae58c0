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
// words. `chosen`, unless null, has for each row of logits the row of bits that holds for it; below zero, none does.
struct BitmaskView {
  const int32_t* data;
  int64_t stride;
  const int32_t* chosen;
};

// Queues on `stream`: logits of excluded tokens become -inf. Throws std::invalid_argument where the views cannot be
// right, std::runtime_error where CUDA refuses the launch.
void apply_bitmask(const LogitsView& logits, const BitmaskView& bits, cudaStream_t stream);

}  // namespace constrain::cuda
