// Sums of the warps of a block, and what becomes of them: the inputs of `down`, or the outputs of the layer.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cuda/activation.cuh"
#include "cuda/cluster.cuh"
#include "cuda/experts/chosen.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"
#include "cuda/linear/tile_product.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kRowGroup = 8;  // rows of x in a tensor core's product

// Sums of the warps of a block, in shared memory.
template <int kMatrices, int kGroups>
struct ExpertSums {
  float products[kMatrices][kProductWarps][kGroups * kRowGroup][kTile];

  // Writes those of this warp, as tensor cores leave them, over what the block has read, for all its threads to read.
  __device__ __forceinline__ void store(const float (&sum)[kMatrices][kGroups][4]) {
    const int warp = threadIdx.x / kWarp, group = threadIdx.x % kWarp / 4, member = threadIdx.x % 4;
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          products[m][warp][g * kRowGroup + member * 2 + i % 2][group + i / 2 * 8] = sum[m][g][i];
      }
    }
    __syncthreads();
  }

  // The product of a row of a matrix and a row of x.
  __device__ __forceinline__ float product(int matrix, int i, int row) const {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kProductWarps; ++w) all += products[matrix][w][row][i];
    return all;
  }
};

__device__ __forceinline__ float weight_of(const ExpertMlp& p, int row, int expert) {
  int j = 0;
  while (p.experts[row * p.chosen + j] != expert) ++j;
  return p.weights[row * p.chosen + j];
}

// Writes 16 outputs of all rows that have chosen an expert, times their weights.
template <typename T, int kGroups>
__device__ __forceinline__ void write_inner(const ExpertMlp& p, const ChosenExperts& chosen,
                                            const ExpertSums<2, kGroups>& sums, int place, int first) {
  const int i = threadIdx.x % kTile, output = first + i, expert = chosen.expert(place);
  if (output >= p.width) return;
  const uint32_t rows = chosen.rows(place);
  const auto total = [&](int m, int row) {
    const float product = sums.product(m, i, row);
    const auto* bias = static_cast<const T*>(p.gate_up_bias) + (int64_t{expert} * 2 + m) * p.width + output;
    return p.gate_up_bias ? product + to_float(*bias) : product;
  };
  for (int row = threadIdx.x / kTile; row < p.rows; row += kProductThreads / kTile) {
    if (!(rows >> row & 1)) continue;
    const float value = gated(total(0, row), total(1, row), p.gate) * weight_of(p, row, expert);
    static_cast<T*>(p.inner)[int64_t{chosen.pick(place, rows, row)} * p.width + output] = from_float<T>(value);
  }
}

// The biases of a row's experts, times their weights.
template <typename T>
__device__ __forceinline__ float bias_sum(const ExpertMlp& p, int row, int output) {
  float sum = 0;
  for (int j = row * p.chosen; j < (row + 1) * p.chosen; ++j)
    sum += p.weights[j] * to_float(static_cast<const T*>(p.down_bias)[p.experts[j] * p.size + output]);
  return sum;
}

// Writes 16 outputs of all rows. The blocks of a cluster have the sums over some of the experts each.
template <typename T, int kGroups>
__device__ __forceinline__ void write_sum(const ExpertMlp& p, const ExpertSums<1, kGroups>& sums, int first) {
  const int i = threadIdx.x % kTile, output = first + i, blocks = cluster_size();
  if (blocks > 1) synchronize_cluster();
  const int rows = cluster_rank() == 0 && output < p.size ? p.rows : 0;
  for (int row = threadIdx.x / kTile; row < rows; row += kProductThreads / kTile) {
    float value = sums.product(0, i, row);
    for (int block = 1; block < blocks; ++block) value += in_block(&sums, block)->product(0, i, row);
    if (p.down_bias) value += bias_sum<T>(p, row, output);
    if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
    static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
  }
  if (blocks > 1) leave_cluster();  // the first still reads the sums of the others
}

// What a block takes of its cluster's experts, or of their spans: those from `begin` to `end`.
struct ExpertShare {
  int begin, end;

  __device__ __forceinline__ explicit ExpertShare(int count)
      : begin(count * cluster_rank() / cluster_size()), end(count * (cluster_rank() + 1) / cluster_size()) {}
};

// Blocks of `down` on a multiprocessor with room for `resident`, where these take as much of it as those of the
// preceding kernel. Of one row, more than two would begin too late.
inline int blocks_after(int rows, int resident) { return rows == 1 ? std::min(resident, 2) : resident; }

// The launch of `down`: a cluster for each 16 outputs, with at most one block per chosen expert, and no more blocks
// than fit on the device at once, `each` on a multiprocessor.
inline LaunchShape shape_of_down(const char* name, const ExpertMlp& p, int each, size_t shared_bytes) {
  const int tiles = (p.size + kTile - 1) / kTile, most = std::min(p.count, p.rows * p.chosen);
  const int room = device_attribute(cudaDevAttrMultiProcessorCount, name) * each;
  const bool clusters = device_attribute(cudaDevAttrComputeCapabilityMajor, name) >= 9;
  const unsigned splits = clusters ? std::clamp(room / tiles, 1, std::min(most, kMostClusterBlocks)) : 1;
  LaunchShape shape{dim3(tiles, splits), kProductThreads, shared_bytes};
  shape.cluster.y = splits;
  return shape;
}

}  // namespace constrain::cuda
