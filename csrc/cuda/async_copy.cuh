// Asynchronous copies from global to shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// Copies 16 bytes, or writes zeros where not `valid`. Unlike a load into registers, which the compiler moves after
// the wait for the preceding kernel, this begins at once.
__device__ __forceinline__ void copy_async(uint4* to, const void* from, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(valid ? 16 : 0)
      : "memory");
}

// Copies 16 bytes if `wanted`, without the branch that the compiler would make of it.
__device__ __forceinline__ void copy_async_where(bool wanted, void* to, const void* from) {
  asm volatile(
      "{\n"
      " .reg .pred wanted;\n"
      " setp.ne.b32 wanted, %2, 0;\n"
      " @wanted cp.async.cg.shared.global [%0], [%1], 16;\n"
      "}\n" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(static_cast<int>(wanted))
      : "memory");
}

// As `copy_async`, through the L1 cache: for what other warps of the multiprocessor copy too.
__device__ __forceinline__ void copy_async_cached(void* to, const void* from, bool valid) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(valid ? 16 : 0)
      : "memory");
}

// Ends a stage: the copies of this thread since the last call.
__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `kLeft` stages of this warp have arrived.
template <int kLeft>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  __syncwarp();
}

}  // namespace constrain::cuda
