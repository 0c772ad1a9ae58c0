// The tokens that go into a decode step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// For each row: the token is `given`, or where that is below zero, the one in `drawn[~given]`, which is taken for 0
// where none could be drawn. It goes to `ids`, and to position `past` of the row's text: entry past % page_size of row
// block_table[r][past / page_size] of `text`, (pages, page_size) int32. `lengths` becomes past + 1. A row with a
// negative `past` is idle: its token is 0, its length is 0, and nothing else is written. Of the others, `given` becomes
// ~r and `past` the next position, so that the same again goes on with what was drawn. Strides are in elements.
struct StepTokens {
  int32_t* given;
  const int64_t* drawn;
  int32_t* past;
  const int32_t* block_table;
  int64_t block_table_stride;
  int page_size;
  int32_t* text;
  int32_t* ids;
  int32_t* lengths;
  int rows;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void enter_tokens(const StepTokens& tokens, cudaStream_t stream);

}  // namespace constrain::cuda
