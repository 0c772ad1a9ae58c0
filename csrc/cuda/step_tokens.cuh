// Input tokens of a decode step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// The token of row r is given[r], or where that is negative sampled[~given[r]], with 0 for -1 (none could be sampled).
// It is written to ids[r], and to position past[r] of the row's sequence: entry past % page_size of row
// block_table[r][past / page_size] of `text`, (pages, page_size) int32. lengths[r] becomes past + 1. A row with a
// negative `past` is idle: its token and its length are 0, and nothing else is written. Of other rows, `given` becomes
// ~r and `past` the next position, so that the next call continues with the tokens sampled in between. Strides are in
// elements.
struct StepTokens {
  int32_t* given;
  const int64_t* sampled;
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
