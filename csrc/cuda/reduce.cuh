// Sums over warps and blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <typename Value>
__device__ __forceinline__ Value warp_sum(Value value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

// The sum over a block of at most 1024 threads, in every thread. `scratch` holds 32 values.
template <typename Value>
__device__ __forceinline__ Value block_sum(Value value, Value* scratch) {
  value = warp_sum(value);
  __syncthreads();  // a sum before this one may still be read
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : Value{});
}

template <typename Value>
__device__ __forceinline__ Value warp_inclusive_sum(Value value) {
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const Value below = __shfl_up_sync(kAllLanes, value, offset);
    if (static_cast<int>(threadIdx.x) % kWarp >= offset) value += below;
  }
  return value;
}

// The sum of the values of this thread and all before it; `total` is that of the last. For blocks of 1024 threads;
// `scratch` holds 32 values.
template <typename Value>
__device__ __forceinline__ Value block_inclusive_sum(Value value, Value* scratch, Value& total) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const Value inclusive = warp_inclusive_sum(value);
  __syncthreads();  // an earlier sum may still be read
  if (lane == kWarp - 1) scratch[warp] = inclusive;
  __syncthreads();
  const Value warps = warp_inclusive_sum(scratch[lane]);
  const Value before = __shfl_sync(kAllLanes, warps, max(warp - 1, 0));
  total = __shfl_sync(kAllLanes, warps, kWarp - 1);
  return inclusive + (warp > 0 ? before : Value{0});
}

__device__ __forceinline__ uint64_t block_exclusive_sum(uint64_t value, uint64_t* scratch, uint64_t& total) {
  return block_inclusive_sum(value, scratch, total) - value;
}

}  // namespace constrain::cuda
