// Rotary position embedding of queries and keys, with the keys and values written into the pages of a cache.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/types.cuh"

namespace constrain::cuda {

// The pages of a cache: `keys` and `values` are (pages, page_size, kv_heads, head_dim) with the last dimension
// contiguous and these strides in elements; `block_table` (batch, blocks) int32 names the pages of a sequence in order.
struct PagesView {
  void* keys;
  void* values;
  int64_t page_stride;
  int64_t slot_stride;
  int64_t head_stride;
  const int32_t* block_table;
  int64_t block_table_stride;
  int page_size;
  int kv_heads;
  int head_dim;
};

// `qkv` is (batch, width, heads + 2 * kv_heads, head_dim), contiguous: the queries are rotated in place, keys are
// rotated and written with the values into the pages. Token i of a sequence is at position `past[b]` + i. `cos` and
// `sin` are (positions, rotary_dim), contiguous, where the second half of `sin` is the sine; features from `rotary_dim`
// on are left as they are. head_dim and rotary_dim / 2 are multiples of 8. Rows whose past is negative are skipped.
struct RotaryRows {
  void* qkv;
  const void* cos;
  const void* sin;
  const int32_t* past;
  PagesView pages;
  int64_t batch;
  int width;
  int heads;
  int rotary_dim;
  FloatType type;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void rotate_into_pages(const RotaryRows& rows, cudaStream_t stream);

}  // namespace constrain::cuda
