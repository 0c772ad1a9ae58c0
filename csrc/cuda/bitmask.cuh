// Exclusion of tokens by a packed bitmask, and the probability that it takes away.
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

// `logits` is (rows, width) float32, the last dimension contiguous, `stride` in elements; those that are not finite
// count as minus infinity. `sums` (rows, 3) gets the logarithm of the sum of exp(logit) over all tokens, that over the
// `allowed` ones, and the logit of the token in `tokens`. `choices` (rows, max_choices) gets the logits of the allowed
// tokens in the order of their ids: of all of them if there are at most `max_choices`, else of those whose bit is also
// set in `watched`, where a row without bits watches none.
struct MaskedRows {
  const float* logits;
  int64_t stride;
  const int64_t* tokens;
  BitmaskView allowed;
  BitmaskView watched;
  float* sums;
  float* choices;
  int max_choices;
  int rows;
  int width;
};

// These throw std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the
// launch.

// Queues on `stream`: logits of excluded tokens become -inf.
void apply_bitmask(const LogitsView& logits, const BitmaskView& bits, cudaStream_t stream);

// Queues on `stream` what `MaskedRows` says.
void measure_masses(const MaskedRows& rows, cudaStream_t stream);

}  // namespace constrain::cuda
