// Repetition, frequency and presence penalties for tokens that occurred already.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// `logits` is (rows, width) float32, changed in place. The sequence of row r is its first `lengths[r]` tokens in
// pages: token i is entry i % page_size of row block_table[r][i / page_size] of `text`, (pages, page_size) int32. The
// last `ranges[r]` of them have weight 1 (-1: all), the `decays[r]` before those weights that fall linearly to 0. With
// w the weight of a token's latest occurrence and v the weights of all, its logit is divided, if positive, or else
// multiplied by 1 + (repetition - 1) w, and lowered by presence w + frequency sum(v), for which the first `starts[r]`
// tokens do not count. `scratch` has 3 * rows * width int32, which must be zero before a call, and are zero after it.
// Strides are in elements.
struct Penalties {
  float* logits;
  int64_t logits_stride;
  const int32_t* text;
  const int32_t* block_table;
  int64_t block_table_stride;
  int page_size;
  const int32_t* lengths;
  const float* repetition;
  const int32_t* ranges;
  const int32_t* decays;
  const float* frequency;
  const float* presence;
  const int32_t* starts;
  int32_t* scratch;
  int rows;
  int width;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void penalise(const Penalties& penalties, cudaStream_t stream);

}  // namespace constrain::cuda
