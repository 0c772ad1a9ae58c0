// The experts that a few rows have chosen, and the rows of each.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/experts/experts.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

// The chosen experts and the rows of each, in shared memory. Every block makes its own list, which takes less time than
// a separate kernel would.
//
// The chosen experts are listed in the order of their numbers. A pick is a row and one of its experts; picks are in the
// order of the list, and those of one expert in the order of the rows.
class ChosenExperts {
 public:
  // To be called by all threads of a block, of at least a warp. Reads `experts`, `rows`, `chosen` and `count`.
  __device__ __forceinline__ void find(const ExpertMlp& p) {
    if (p.rows == 1) return find_of_row(p);
    for (int i = threadIdx.x; i < p.count; i += blockDim.x) rows_[i] = 0;
    __syncthreads();
    // Not from the L1 cache, which may be older than the choice where a kernel has not waited for its predecessor.
    for (int i = threadIdx.x; i < p.rows * p.chosen; i += blockDim.x)
      atomicOr(&rows_[__ldcg(p.experts + i)], 1u << i / p.chosen);
    __syncthreads();
    if (threadIdx.x < kWarp) list(p.count);
    __syncthreads();
  }

  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int expert(int place) const { return experts_[place]; }

  // The rows of a listed expert, one bit each.
  __device__ __forceinline__ uint32_t rows(int place) const { return rows_[experts_[place]]; }

  // Index of a pick.
  __device__ __forceinline__ int pick(int place, uint32_t rows, int row) const {
    return first_picks_[place] + __popc(rows & ((1u << row) - 1));
  }

 private:
  // The same for one row. Its experts are distinct, so the place of each is the number of smaller ones.
  __device__ __forceinline__ void find_of_row(const ExpertMlp& p) {
    const int lane = threadIdx.x;
    if (lane < kWarp) {
      const int expert = lane < p.chosen ? static_cast<int>(__ldcg(p.experts + lane)) : INT32_MAX;
      int place = 0;
      for (int other = 0; other < p.chosen; ++other) place += __shfl_sync(kAllLanes, expert, other) < expert;
      if (lane < p.chosen) {
        rows_[expert] = 1;
        experts_[place] = static_cast<uint16_t>(expert);
        first_picks_[place] = static_cast<uint16_t>(place);
      }
      if (lane == 0) count_ = p.chosen;
    }
    __syncthreads();
  }

  // Lists the chosen experts and the first pick of each, with one sum for both: that of picks in the lower 16 bits.
  __device__ __forceinline__ void list(int count) {
    static_assert(kMaxPackedExpertRows * kMaxChosen < 1 << 16);
    const int lane = threadIdx.x;
    int before = 0;
    for (int start = 0; start < count; start += kWarp) {
      const int expert = start + lane;
      const int picks = expert < count ? __popc(rows_[expert]) : 0;
      const int own = picks ? picks + (1 << 16) : 0;
      int sum = own;
#pragma unroll
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const int other = __shfl_up_sync(kAllLanes, sum, offset);
        if (lane >= offset) sum += other;
      }
      if (picks) {
        const int mine = before + sum - own;
        experts_[mine >> 16] = static_cast<uint16_t>(expert);
        first_picks_[mine >> 16] = static_cast<uint16_t>(mine & 0xffff);
      }
      before += __shfl_sync(kAllLanes, sum, kWarp - 1);
    }
    if (lane == 0) count_ = before >> 16;
  }

  uint32_t rows_[kMaxExperts];  // of each expert
  uint16_t experts_[kMaxExperts];
  uint16_t first_picks_[kMaxExperts];
  int count_;
};

}  // namespace constrain::cuda
