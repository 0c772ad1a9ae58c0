// Attention of a few new tokens over the pages of a cache.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/rotary.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

// `q` is (batch, queries, heads, head_dim), its last dimension contiguous, strides in elements; the queries are those
// of the last positions of each sequence, whose length, themselves included, is `lengths[b]`. Query i sees the keys up
// to its own position; with a window, the last `window` of them only (0: all). Scores are q . k * scale, and with a
// `cap` cap * tanh of them over cap (0: none). `out` is (batch, queries, heads * head_dim), contiguous. Rows of length
// 0 come out as zeros.
struct PagedAttention {
  const void* q;
  void* out;
  int64_t q_batch_stride;
  int64_t q_query_stride;
  int64_t q_head_stride;
  PagesView pages;
  const int32_t* lengths;
  int64_t max_length;  // no sequence is longer
  int batch;
  int queries;
  int heads;
  int window;
  float scale;
  float cap;
  FloatType type;
};

// Memory that a call needs: `partials` in bytes, uninitialised; `counters` in int32, zero before the first call, which
// every call leaves zero. Calls that may run at the same time need memory of their own.
struct AttentionWorkspace {
  int64_t partial_bytes;
  int64_t counters;
};

AttentionWorkspace attention_workspace(const PagedAttention& attention);

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void paged_attention(const PagedAttention& attention, void* partials, int32_t* counters, cudaStream_t stream);

}  // namespace constrain::cuda
