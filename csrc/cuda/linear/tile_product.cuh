// The main loop of linear layers: a block multiplies 16 rows of one or two matrices by up to eight rows of x.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/linear/product.cuh"
#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kProductWarps = 8;
constexpr int kProductThreads = kProductWarps * kWarp;
constexpr int kTile = 16;           // matrix rows of a block, and of a tensor core's product
constexpr int kSpan = 64;           // inputs that a warp takes in one stage: a cache line of each matrix row
constexpr int kChunks = kSpan / 8;  // of 16 bytes, in a cache line
constexpr int kHalves = kSpan / 32;
constexpr int kLinesAtOnce = kWarp / kChunks;
constexpr int kRingBytes = 64 << 10;

// Rows of x. `width` is the number of inputs, `norm_weight` null where they are not normalised.
struct InputRows {
  const void* x;
  const void* norm_weight;
  int64_t stride;
  int count;
  int width;
};

// Sixteen rows, from `first` on, of each of the matrices, which have `height` rows and follow one another. The inputs
// are those from `begin` to `end`.
struct MatrixTiles {
  const void* matrix;
  int height;
  int first;
  int begin;
  int end;
};

// Sums of the warps of a block, in shared memory.
template <int kMatrices>
struct BlockSums {
  float products[kMatrices][kProductWarps][kTile][kMaxProductRows];
  float squares[kProductWarps][kMaxProductRows];

  // The product of a row of a matrix and a row of x.
  __device__ __forceinline__ float product(int matrix, int i, int row) const {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kProductWarps; ++w) all += products[matrix][w][i][row];
    return all;
  }

  // The sum of the squares of a row of x.
  __device__ __forceinline__ float square(int row) const {
    float all = 0;
#pragma unroll
    for (int w = 0; w < kProductWarps; ++w) all += squares[w][row];
    return all;
  }
};

// The warps take turns at spans of the inputs, and their sums are added at the end. Every warp has a ring of stages in
// shared memory for its part of the matrices, so that no warp waits for another; the ring begins to fill before the
// preceding kernel has ended. Matrices are loaded in whole cache lines by eight lanes each.
template <typename T, int kMatrices, bool kNorm>
class TileProduct {
 public:
  static constexpr int kStage = kTile * kChunks;  // chunks of one matrix
  static constexpr int kDepth = kRingBytes / (kProductWarps * kMatrices * kStage * 16);

  float sum[kMatrices][4] = {};

  // `rings` are kRingBytes of shared memory.
  __device__ __forceinline__ TileProduct(const InputRows& rows, const MatrixTiles& tiles, uint4* rings)
      : rows_(rows), tiles_(tiles), ring_(rings + warp_ * kDepth * kMatrices * kStage) {}

  // Requests what the ring holds. Reads the matrices only.
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) fetch(d, d);
  }

  // Multiplies. All that was requested has arrived at the end.
  __device__ __forceinline__ void run() {
    const int inputs = tiles_.end - tiles_.begin;
    const int stages = (inputs + kProductWarps * kSpan - 1) / (kProductWarps * kSpan);
    Columns next = load_columns(0);
    for (int start = 0; start < stages; start += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        Columns columns = next;
        next = load_columns(start + d + 1);
        wait_for_stage<kDepth - 1>();
        multiply_stage(d, columns);
        __syncwarp();
        fetch(d, start + d + kDepth);
      }
    }
  }

  __device__ __forceinline__ void store(BlockSums<kMatrices>& sums) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.products[m][warp_][group_ + i / 2 * 8][member_ * 2 + i % 2] = sum[m][i];
    }
    if constexpr (kNorm) {
      square_ += __shfl_xor_sync(kAllLanes, square_, 1);
      square_ += __shfl_xor_sync(kAllLanes, square_, 2);
      if (member_ == 0) sums.squares[warp_][group_] = square_;
    }
  }

 private:
  // The lane's part of the rows of x, which are the columns of the product, for one stage.
  struct Columns {
    uint4 x[kHalves], factor[kHalves];
  };

  // Index of a chunk of a matrix row, swizzled so that the lanes of a load use different banks.
  static __device__ __forceinline__ int place(int row, int chunk) { return row * kChunks + (chunk ^ (row % 2 * 4)); }

  __device__ __forceinline__ int first_input(int stage) const {
    return tiles_.begin + (stage * kProductWarps + warp_) * kSpan;
  }

  __device__ __forceinline__ void fetch(int d, int stage) {
    const int chunk = lane_ % kChunks, input = first_input(stage) + chunk * 8;
    const bool valid = input < tiles_.end;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kTile / kLinesAtOnce; ++i) {
        const int row = i * kLinesAtOnce + lane_ / kChunks;
        const int matrix_row = min(tiles_.first + row, tiles_.height - 1) + m * tiles_.height;
        const T* from = static_cast<const T*>(tiles_.matrix) + int64_t{matrix_row} * rows_.width + (valid ? input : 0);
        copy_async(ring_ + (d * kMatrices + m) * kStage + place(row, chunk), from, valid);
      }
    }
    end_stage();
  }

  __device__ __forceinline__ Columns load_columns(int stage) const {
    Columns columns;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int input = first_input(stage) + h * 32 + member_ * 8;
      const T* x = static_cast<const T*>(rows_.x) + group_ * rows_.stride + input;
      const T* factor = static_cast<const T*>(rows_.norm_weight) + input;
      const bool valid = group_ < rows_.count && input < tiles_.end;
      columns.x[h] = valid ? *reinterpret_cast<const uint4*>(x) : make_uint4(0, 0, 0, 0);
      if constexpr (kNorm) columns.factor[h] = valid ? *reinterpret_cast<const uint4*>(factor) : make_uint4(0, 0, 0, 0);
    }
    return columns;
  }

  __device__ __forceinline__ void multiply_stage(int d, Columns& columns) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      if constexpr (kNorm) columns.x[h] = multiply8<T>(columns.x[h], columns.factor[h], square_);
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        const uint4* stage = ring_ + (d * kMatrices + m) * kStage;
        const uint4 row = stage[place(group_, h * 4 + member_)], row8 = stage[place(group_ + 8, h * 4 + member_)];
        multiply_add_packs<T>(sum[m], row, row8, columns.x[h]);
      }
    }
  }

  const int warp_ = threadIdx.x / kWarp, lane_ = threadIdx.x % kWarp, group_ = lane_ / 4, member_ = lane_ % 4;
  const InputRows rows_;
  const MatrixTiles tiles_;
  uint4* const ring_;
  float square_ = 0;
};

}  // namespace constrain::cuda
