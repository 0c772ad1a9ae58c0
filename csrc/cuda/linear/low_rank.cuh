// Low-rank updates: t = x @ down.T is projected by blocks of their own, and every block of outputs adds t @ up.T.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/atomic>

#include "cuda/launch.cuh"
#include "cuda/linear/tile_product.cuh"

namespace constrain::cuda {

constexpr int kRankSpan = 32;               // ranks that a warp adds
constexpr int kRankChunks = kRankSpan / 8;  // of 16 bytes
static_assert(kMaxRank == kProductWarps * kRankSpan);
// Inputs that a projecting block takes: those that fill its ring, so that it is done long before the other blocks.
constexpr int kSlice = kRingBytes / (kTile * 2);

__host__ __device__ inline int num_slices(int inputs) { return (inputs + kSlice - 1) / kSlice; }

// Blocks that project one group of rows: 16 ranks and a slice of the inputs each.
__host__ __device__ inline int num_projections(const Product& p) {
  return (p.update.rank + kTile - 1) / kTile * num_slices(p.inputs);
}

// Eight ranks of a row of t, which is stored as (slices, rows, rank) and summed here.
template <typename T>
__device__ __forceinline__ uint4 load_projected(const Product& p, int row, int rank) {
  float sum[8] = {};
  const int slices = num_slices(p.inputs);
#pragma unroll 4
  for (int s = 0; s < slices; ++s) {
    const float* slice = p.update.projected + (int64_t{s} * p.rows + row) * p.update.rank + rank;
    const float4 low = *reinterpret_cast<const float4*>(slice);
    const float4 high = *reinterpret_cast<const float4*>(slice + 4);
    const float part[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += part[i];
  }
  return pack8<T>(sum);
}

// Projects up to eight rows of x, from `first_row` on. With a norm, the division by the root is left to the outputs.
template <typename T, bool kNorm>
__device__ __forceinline__ void project(const Product& p, int block, int first_row, uint4* rings) {
  __shared__ BlockSums<1> sums;
  const int slices = num_slices(p.inputs), slice = block % slices, first = block / slices * kTile;
  const T* x = static_cast<const T*>(p.x) + first_row * p.x_stride;
  TileProduct<T, 1, kNorm> product(
      {x, p.norm_weight, p.x_stride, p.rows - first_row, p.inputs},
      {p.update.down, p.update.rank, first, slice * kSlice, min((slice + 1) * kSlice, p.inputs)}, rings);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  product.store(sums);
  __syncthreads();
  const int rank = first + threadIdx.x % kTile, i = threadIdx.x / kTile, row = first_row + i;
  if (i < kMaxProductRows && row < p.rows && rank < p.update.rank)
    p.update.projected[(int64_t{slice} * p.rows + row) * p.update.rank + rank] =
        sums.product(0, threadIdx.x % kTile, i);
}

// Order between the blocks of one launch: `projections` blocks project, the others wait for them.
//
// No block waits forever: blocks start in the order of their indices, and those that project are the first and wait for
// the preceding kernel only. Its blocks, and those of other streams, do not depend on this launch; and the next kernel
// starts no block before all of this one have started.
class ProjectionBarrier {
 public:
  __device__ __forceinline__ ProjectionBarrier(int* signals, int projections)
      : signals_(signals), projections_(projections) {}

  // To be called by all threads of a block that projects, when they have written.
  __device__ __forceinline__ void arrive() {
    __syncthreads();
    if (threadIdx.x == 0) arrived().fetch_add(1, ::cuda::memory_order_release);
  }

  // Lets a warp wait until all that is projected can be read.
  __device__ __forceinline__ void wait() const {
    while (arrived().load(::cuda::memory_order_acquire) < projections_) {
    }
    __syncwarp();
  }

  // To be called by one thread of each other block, when all its warps have waited. The last one prepares the next
  // launch, which touches the signals only after this one has ended. Relaxed, because the last polls of a block have
  // returned before it is counted.
  __device__ __forceinline__ void leave() const {
    const int others = static_cast<int>(gridDim.x) - projections_;
    if (left().fetch_add(1, ::cuda::memory_order_relaxed) != others - 1) return;
    arrived().store(0, ::cuda::memory_order_relaxed);
    left().store(0, ::cuda::memory_order_relaxed);
  }

 private:
  using Signal = ::cuda::atomic_ref<int, ::cuda::thread_scope_device>;

  __device__ __forceinline__ Signal arrived() const { return Signal(signals_[0]); }
  __device__ __forceinline__ Signal left() const { return Signal(signals_[1]); }

  int* const signals_;
  const int projections_;
};

// The rows of `up` for the outputs of a block, in shared memory: each warp has its ranks.
template <typename T, int kMatrices>
class UpTiles {
 public:
  // Requests the tiles; as all copies, they arrive with the stage that is ended next.
  __device__ __forceinline__ void prefetch(const Product& p, int first) {
    if (!has_rank(p)) return;
    const int rank = first_rank() + chunk() * 8;
    const bool valid = rank < p.update.rank;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kTile; i += kWarp / kRankChunks) {
        const int row = i + lane() / kRankChunks;
        const int64_t up_row = min(first + row, p.outputs - 1) + m * p.outputs;
        const T* from = static_cast<const T*>(p.update.up) + up_row * p.update.rank + (valid ? rank : 0);
        copy_async(&tiles_[warp()][m][row][chunk()], from, valid);
      }
    }
  }

  // Adds t @ up.T to the sums of a warp.
  __device__ __forceinline__ void add(const Product& p, const ProjectionBarrier& barrier,
                                      float (&sum)[kMatrices][4]) const {
    if (!has_rank(p)) return;
    barrier.wait();
    const int row = lane() / kRankChunks, rank = first_rank() + chunk() * 8;
    const bool valid = row < p.rows && rank < p.update.rank;
    const uint4 column = valid ? load_projected<T>(p, row, rank) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      multiply_add_packs<T>(sum[m], tiles_[warp()][m][row][chunk()], tiles_[warp()][m][row + 8][chunk()], column);
  }

 private:
  static __device__ __forceinline__ int warp() { return threadIdx.x / kWarp; }
  static __device__ __forceinline__ int lane() { return threadIdx.x % kWarp; }
  static __device__ __forceinline__ int chunk() { return lane() % kRankChunks; }
  static __device__ __forceinline__ int first_rank() { return warp() * kRankSpan; }
  static __device__ __forceinline__ bool has_rank(const Product& p) { return first_rank() < p.update.rank; }

  uint4 tiles_[kProductWarps][kMatrices][kTile][kRankChunks];
};

inline void check(const LowRank& update, const char* name) {
  require(update.projected && update.signals, name, "no scratch memory for an update");
  for (const void* pointer : {update.down, update.up, static_cast<const void*>(update.projected)})
    require(pointer && aligned(pointer, 16), name, "null or misaligned pointer of an update");
  require(update.rank > 0 && update.rank % 8 == 0 && update.rank <= kMaxRank, name, "unsupported rank");
}

}  // namespace constrain::cuda
