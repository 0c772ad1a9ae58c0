// DRY ("don't repeat yourself"): penalties for tokens that would prolong a repetition.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bitmask.cuh"

namespace constrain::cuda {

// `logits` is (rows, width) float32, changed in place. The tokens of row r are the first `lengths[r]` in pages: token i
// is entry i % page_size of row block_table[r][i / page_size] of `text`, (pages, page_size) int32. Of these, the last
// `ranges[r]` are looked at (0: all). See constrain/kernels/repetition.py for the rule. Tokens whose bit in `breakers`
// is set, and those outside of the width, end a repetition. Rows whose `multiplier` is 0 are left alone. Strides are in
// elements.
struct Repetition {
  float* logits;
  int64_t logits_stride;
  const int32_t* text;
  const int32_t* block_table;
  int64_t block_table_stride;
  int page_size;
  const int32_t* lengths;
  const float* multiplier;
  const float* base;
  const int32_t* allowed_length;
  const int32_t* max_ngram;
  const int32_t* ranges;
  BitmaskView breakers;
  int rows;
  int width;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void apply_dry(const Repetition& repetition, cudaStream_t stream);

}  // namespace constrain::cuda
