// A row of logits, scanned by the warps of one or more blocks.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/cluster.cuh"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling/sampling.cuh"

namespace constrain::cuda {

constexpr int kSampleThreads = 1024;  // threads of a block
constexpr int kSampleWarps = kSampleThreads / kWarp;
constexpr int kUnroll = 8;  // loads that a thread has in flight together

// The blocks that share a row: those of a cluster. They scan the row together; then the first block goes on alone with
// the few tokens that may be sampled.
struct Team {
  int rank = 0, size = 1;

  __device__ void synchronize() const {
    if (size > 1)
      synchronize_cluster();
    else
      __syncthreads();
  }
};

// The tokens that a warp works on, in the order of their ids: a range of the row that begins at a multiple of 32, or of
// the list of those that may be sampled.
struct Source {
  const float* values;
  const int32_t* ids;   // ids of the list; null for the row itself
  const int32_t* bits;  // bitmask of the tokens of a row that are allowed; null for all
  int begin, end;

  __device__ int id(int i) const { return ids ? ids[i] : i; }

  // The bitmask of the kUnroll * 32 tokens from `start` on, a word in each of the first kUnroll lanes.
  __device__ uint32_t words(int start) const {
    if (!bits) return ~0u;
    const int lane = threadIdx.x % kWarp;
    return lane < kUnroll && start + lane * kWarp < end ? bits[start / kWarp + lane] : 0;
  }
};

// This warp's part of `count` values.
__device__ __forceinline__ Source part_of(const Team& team, const float* values, const int32_t* ids,
                                          const int32_t* bits, int count) {
  const int warps = team.size * kSampleWarps, warp = team.rank * kSampleWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int range = (count + warps * kWarp - 1) / (warps * kWarp) * kWarp;
  return {values, ids, bits, min(warp * range, count), min((warp + 1) * range, count)};
}

// This warp's part of row `r`.
__device__ __forceinline__ Source source_of(const Sampling& p, int r, const Team& team) {
  return part_of(team, p.logits + r * p.stride, nullptr, bits_of(p.allowed, r), p.width);
}

// Loads the logits of kUnroll * 32 tokens from `start` on, whose bitmask is `words`. Logits of excluded tokens are not
// read; they count as minus infinity, as those do that are not finite.
__device__ __forceinline__ void load_chunk(const Source& source, int start, uint32_t words, float (&x)[kUnroll]) {
  const int lane = threadIdx.x % kWarp;
  bool taken[kUnroll];
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) taken[j] = start + j * kWarp + lane < source.end;
  if (source.bits) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) taken[j] &= __shfl_sync(kAllLanes, words, j) >> lane & 1;
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) x[j] = taken[j] ? source.values[start + j * kWarp + lane] : -INFINITY;
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) x[j] = isfinite(x[j]) ? x[j] + 0.0f : -INFINITY;  // -0 becomes 0
}

// Calls `use(logits, start)` for each chunk of kUnroll * 32 tokens of the warp, until it returns false. Chunks without
// an allowed token are skipped.
template <typename Use>
__device__ __forceinline__ void for_each_chunk(const Source& source, const Use& use) {
  constexpr int kTokens = kUnroll * kWarp;
  uint32_t next = source.words(source.begin);
  for (int start = source.begin; start < source.end; start += kTokens) {
    // The bitmask is loaded one chunk ahead: which logits to load depends on it.
    const uint32_t words = next;
    next = source.words(start + kTokens);
    if (!__any_sync(kAllLanes, words != 0)) continue;
    float x[kUnroll];
    load_chunk(source, start, words, x);
    if (!use(x, start)) return;
  }
}

// Calls `use(logit, i)` for the warp's tokens, 32 at a time with all lanes active; the logit is minus infinity for
// tokens that do not count.
template <typename Use>
__device__ __forceinline__ void for_each(const Source& source, const Use& use) {
  for_each_chunk(source, [&](const float (&x)[kUnroll], int start) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) use(x[j], start + j * kWarp + static_cast<int>(threadIdx.x) % kWarp);
    return true;
  });
}

// How many clusters of `blocks` blocks run at the same time: fewer than the multiprocessors have room for, since a
// cluster is not spread over groups of multiprocessors, of which some are larger than others.
template <typename... Parameters>
int active_clusters(const char* name, void (*kernel)(Parameters...), unsigned blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kSampleThreads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, reinterpret_cast<const void*>(kernel), &config), name);
  return clusters;
}

// Launches a kernel with a team for each row, of as many blocks as can all run at the same time.
template <typename... Parameters>
void launch_rows(const char* name, void (*kernel)(Parameters...), int rows, cudaStream_t stream,
                 Parameters... arguments) {
  const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount, name);
  LaunchShape shape{dim3(rows), kSampleThreads};
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, name) >= 9) {
    for (unsigned blocks = kMostClusterBlocks; blocks > 1 && shape.cluster.x == 1; blocks /= 2) {
      if (rows <= multiprocessors / static_cast<int>(blocks) && active_clusters(name, kernel, blocks) >= rows)
        shape.grid.x = rows * (shape.cluster.x = blocks);
    }
  }
  launch(name, kernel, shape, stream, arguments...);
}

}  // namespace constrain::cuda
