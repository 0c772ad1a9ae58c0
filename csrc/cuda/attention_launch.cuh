// How the work of an attention is divided among blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr const char* kAttentionName = "paged_attention";
constexpr int kAttentionRows = 16;  // rows of a block: heads of one group, times queries
constexpr int kAttentionKeys = 16;  // keys of a tile, which lies within one page
constexpr int kMaxSplits = 128;
// Tiles of a split, at least: to join two takes as long as some seven.
constexpr int kLeastTiles = 12;

// Warps that the registers of a multiprocessor allow.
template <int kDim>
constexpr int kMostAttentionWarps = kDim <= 128 ? 12 : 8;

// `partials` is where the parts of splits are kept; `row_blocks` is how many blocks of rows the heads of a group have;
// `spread`: no two blocks share a multiprocessor.
struct AttentionLaunch {
  PagedAttention p;
  void* partials;
  int32_t* counters;
  int row_blocks;
  bool spread;
};

struct AttentionShape {
  int warps;  // of a block
  int splits;
  int row_blocks;
  int64_t blocks;  // of rows, over the whole batch
  size_t shared_bytes;
};

// Queue the kernel for pages of 16-bit floats, of truncated floats, and of quantized groups.
void launch_plain_attention(const AttentionLaunch& launch, const AttentionShape& shape, cudaStream_t stream);
void launch_float8_attention(const AttentionLaunch& launch, const AttentionShape& shape, cudaStream_t stream);
void launch_grouped_attention(const AttentionLaunch& launch, const AttentionShape& shape, cudaStream_t stream);

}  // namespace constrain::cuda
