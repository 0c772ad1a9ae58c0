// Drawing tokens from logits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bitmask.cuh"

namespace constrain::cuda {

// `logits` is (rows, width) float32, the last dimension contiguous, `stride` in elements. For each row: the logits are
// divided by `temperatures` (below 0.01: the most likely token is taken); the most likely `top_k` tokens stay (0: all),
// then the fewest of them that reach the probability `top_p` (0, or 1 and above: all), then those with at least
// `min_p` times the largest probability. Tokens of equal logits count in the order of their ids. The draw is decided by
// `seeds` and `steps`: Philox 4x32-10 (Salmon et al. 2011) with the seed as key and the step as counter. `tokens` and
// `probabilities` get the token drawn, and its probability among those that stayed. A row without a finite logit gets
// token -1. Only tokens that `allowed` allows are looked at, all where its data is null.
struct Draw {
  const float* logits;
  int64_t stride;
  const float* temperatures;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const int64_t* seeds;
  const int32_t* steps;
  int64_t* tokens;
  float* probabilities;
  BitmaskView allowed;
  int rows;
  int width;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void draw(const Draw& draw, cudaStream_t stream);

}  // namespace constrain::cuda
