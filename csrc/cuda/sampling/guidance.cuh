// Changes of whole rows of logits: classifier-free guidance, and a bias for each token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// `logits` is (rows, width) float32, changed in place, `stride` in elements. Row r with a `partner[r]` that is not
// negative becomes scale[r] * log_softmax(row r) + (1 - scale[r]) * log_softmax(row partner[r]). Partners have no
// partner themselves.
struct Guidance {
  float* logits;
  int64_t stride;
  const int32_t* partner;
  const float* scale;
  int rows;
  int width;
};

// Row chosen[r] of `pool`, (n, width) float32, is added to row r of `logits`; none where it is negative.
struct Bias {
  float* logits;
  int64_t stride;
  const float* pool;
  int64_t pool_stride;
  const int32_t* chosen;
  int rows;
  int width;
};

// These throw std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the
// launch.
void apply_guidance(const Guidance& guidance, cudaStream_t stream);
void add_bias(const Bias& bias, cudaStream_t stream);

}  // namespace constrain::cuda
