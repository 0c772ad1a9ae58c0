// Attention of a few new tokens over a paged KV cache, after their keys and values have been written there.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/pages.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

// `qkv` is (batch, queries, heads + 2 * kv_heads, head_dim), contiguous: the new tokens of each sequence, its last
// ones; with them its length is `lengths[b]`. Queries and keys are rotated to their positions: `cos` and `sin` are
// (positions, rotary_dim), contiguous, with the first half of a row of `sin` negated; features from `rotary_dim` on are
// left as they are. Keys and values are written into the pages.
//
// Query i sees the keys up to its own position; with a window, the last `window` of them only (0: all). Scores are
// q . k * scale, and with a `cap` cap * tanh of them over cap (0: none). `out` is (batch, queries, heads * head_dim),
// contiguous. The outputs of rows of length 0 are zero.
//
// The preceding kernel, and those that it may overlap with, must not write `lengths` or the block table.
struct PagedAttention {
  const void* qkv;
  void* out;
  const void* cos;
  const void* sin;
  PagesView pages;
  const int32_t* lengths;
  int64_t max_length;  // no sequence is longer
  int batch;
  int queries;
  int heads;
  int rotary_dim;
  int window;
  float scale;
  float cap;
  FloatType type;
};

// Memory that a call needs: `partials` in bytes, uninitialised; `counters` in int32, zero before a call, and
// zero after it. Calls that may overlap need memory of their own.
struct AttentionWorkspace {
  int64_t partial_bytes;
  int64_t counters;
};

AttentionWorkspace attention_workspace(const PagedAttention& attention);

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void paged_attention(const PagedAttention& attention, void* partials, int32_t* counters, cudaStream_t stream);

}  // namespace constrain::cuda
