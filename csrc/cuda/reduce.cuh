// Sums over warps and blocks.
#pragma once

#include <cuda_runtime.h>

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

}  // namespace constrain::cuda
