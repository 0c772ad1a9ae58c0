// Division of the work of attention among blocks.
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
// Least number of tiles of a split: joining two splits takes as long as about seven tiles.
constexpr int kLeastTiles = 12;

// Most warps of a block, as the registers of a multiprocessor allow.
template <int kDim>
constexpr int kMostAttentionWarps = kDim <= 128 ? 12 : 8;

// `partials` holds the results of splits; `row_blocks` is the number of blocks of rows of a group of heads; `spread`:
// no two blocks share a multiprocessor.
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
