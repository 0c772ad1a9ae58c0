// The main loop of experts: a block multiplies 16 rows of one or two matrices of each of some experts by the rows of x
// that have chosen them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda/async_copy.cuh"
#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/linear/tile_product.cuh"
#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

// Operands of a block: `x`, with a row for each token or for each pick, and kTile rows, from `first` on, of the one or
// two (height, inputs) matrices of each listed expert. Of the spans of the inputs, one expert after the other, the
// block takes those from `begin` to `end`.
struct ExpertSpan {
  const void* x;
  int64_t x_stride;
  int inputs;
  const void* weight;
  int height;
  int first;
  int begin;
  int end;
};

// As in TileProduct, the warps take turns at spans of the inputs, here of one expert after the other; each has a ring
// of stages for its part of the matrices, and the sums of the warps are added at the end. The sum of a row is over all
// experts that it has chosen: elsewhere its inputs count as zeros, and groups of rows without any are skipped.
template <typename T, int kMatrices, int kGroups, bool kPicks, int kBytes>
class ExpertTiles {
 public:
  using Sums = ExpertSums<kMatrices, kGroups>;
  static constexpr int kStage = kTile * kChunks;  // chunks of one matrix
  static constexpr int kDepth = kBytes / (kProductWarps * kMatrices * kStage * 16);
  static_assert(sizeof(Sums) <= kBytes);

  // `rings` are kBytes of shared memory. `span` must outlive this: from a copy of a temporary, nvcc 13.0 makes
  // reads of the kernel's parameters.
  __device__ __forceinline__ ExpertTiles(const ChosenExperts& chosen, const ExpertSpan& span, uint4* rings)
      : chosen_(chosen), span_(span), rings_(rings), ring_(rings + warp_ * kDepth * kMatrices * kStage) {
    settle(fetched_);
    read_ = fetched_;
  }

  // Requests what the ring holds. Reads the matrices only.
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) fetch(d);
  }

  // Multiplies. All that was requested has arrived at the end.
  __device__ __forceinline__ void run() {
    const int stages = (span_.end - span_.begin + kProductWarps - 1) / kProductWarps;
    Columns next = load_columns();
    for (int start = 0; start < stages; start += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const Columns columns = next;
        next = load_columns();
        wait_for_stage<kDepth - 1>();
        multiply_stage(d, columns);
        __syncwarp();
        fetch(d);
      }
    }
  }

  // Writes the sums of the warps over the rings, for all threads of the block to read.
  __device__ __forceinline__ const Sums& store() {
    Sums& sums = *reinterpret_cast<Sums*>(rings_);
    sums.store(sum_);
    return sums;
  }

 private:
  // Position of a warp: a span among those of all experts, or an index in their list and a span of that expert.
  struct Position {
    int index;
    int place;
    int span;
  };

  // The lane's part of the rows of x, which are the columns of the product, for one stage; and which rows these are.
  struct Columns {
    uint4 x[kGroups][kHalves];
    uint32_t rows;
  };

  static __device__ __forceinline__ bool has_group(uint32_t rows, int g) {
    return (rows >> g * kRowGroup & ((1 << kRowGroup) - 1)) != 0;
  }

  // Index of a chunk of a matrix row, swizzled so that the lanes of a load use different banks.
  static __device__ __forceinline__ int chunk_index(int row, int chunk) {
    return row * kChunks + (chunk ^ (row % 2 * 4));
  }

  __device__ __forceinline__ void settle(Position& at) const {
    while (at.span >= spans_) {
      at.span -= spans_;
      ++at.place;
    }
  }

  __device__ __forceinline__ void advance(Position& at) const {
    at.index += kProductWarps;
    at.span += kProductWarps;
    settle(at);
  }

  __device__ __forceinline__ void fetch(int d) {
    if (fetched_.index < span_.end) {
      const int chunk = lane_ % kChunks, input = fetched_.span * kSpan + chunk * 8;
      const bool valid = input < span_.inputs;
      const int64_t matrix_row = int64_t{chosen_.expert(fetched_.place)} * kMatrices * span_.height;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int i = 0; i < kTile / kLinesAtOnce; ++i) {
          const int row = i * kLinesAtOnce + lane_ / kChunks;
          const int64_t from_row = matrix_row + min(span_.first + row, span_.height - 1) + m * span_.height;
          const T* from = static_cast<const T*>(span_.weight) + from_row * span_.inputs + (valid ? input : 0);
          copy_async(ring_ + (d * kMatrices + m) * kStage + chunk_index(row, chunk), from, valid);
        }
      }
      advance(fetched_);
    }
    end_stage();
  }

  __device__ __forceinline__ Columns load_columns() {
    Columns columns;
    columns.rows = 0;
    if (read_.index >= span_.end) return columns;
    columns.rows = chosen_.rows(read_.place);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (!has_group(columns.rows, g)) continue;
      const int row = g * kRowGroup + group_;
      const bool chosen = columns.rows >> row & 1;
      const int64_t number = kPicks ? chosen_.pick(read_.place, columns.rows, row) : row;
      const T* x = static_cast<const T*>(span_.x) + number * span_.x_stride;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int input = read_.span * kSpan + h * 32 + member_ * 8;
        const bool valid = chosen && input < span_.inputs;
        columns.x[g][h] = valid ? *reinterpret_cast<const uint4*>(x + input) : make_uint4(0, 0, 0, 0);
      }
    }
    advance(read_);
    return columns;
  }

  __device__ __forceinline__ void multiply_stage(int d, const Columns& columns) {
    if (!columns.rows) return;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        const uint4* stage = ring_ + (d * kMatrices + m) * kStage;
        const uint4 row = stage[chunk_index(group_, h * 4 + member_)];
        const uint4 row8 = stage[chunk_index(group_ + 8, h * 4 + member_)];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          if (has_group(columns.rows, g)) multiply_add_packs<T>(sum_[m][g], row, row8, columns.x[g][h]);
        }
      }
    }
  }

  const int warp_ = threadIdx.x / kWarp, lane_ = threadIdx.x % kWarp, group_ = lane_ / 4, member_ = lane_ % 4;
  const ChosenExperts& chosen_;
  const ExpertSpan& span_;
  const int spans_ = (span_.inputs + kSpan - 1) / kSpan;
  uint4* const rings_;
  uint4* const ring_;
  Position fetched_{span_.begin + warp_, 0, span_.begin + warp_};
  Position read_{};
  float sum_[kMatrices][kGroups][4] = {};
};

// Calls `use` with the number of groups of rows for which a kernel is compiled, at least those of `rows`.
template <typename Use>
void with_row_groups(int rows, Use&& use) {
  if (rows <= kRowGroup) return use(std::integral_constant<int, 1>{});
  use(std::integral_constant<int, 2>{});
}

// Blocks on a multiprocessor that registers leave room for.
constexpr int blocks_at_once(int groups) { return groups == 1 ? 3 : 2; }

}  // namespace constrain::cuda
