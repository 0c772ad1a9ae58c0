// Clusters of blocks, which read one another's shared memory (compute capability 9.0 and later).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// Most blocks of a cluster on every device that has clusters.
constexpr int kMostClusterBlocks = 8;

// Waits for all threads of the cluster; what they have written to shared memory can be read then. Elsewhere, a cluster
// is a block.
__device__ __forceinline__ void synchronize_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

// The value at the place of `own` in the shared memory of another block of the cluster.
__device__ __forceinline__ float read_cluster(const float* own, int block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  float value;
  asm volatile(
      "{\n"
      " .reg .u32 remote;\n"
      " mapa.shared::cluster.u32 remote, %1, %2;\n"
      " ld.shared::cluster.f32 %0, [remote];\n"
      "}\n"
      : "=f"(value)
      : "r"(address), "r"(block)
      : "memory");
  return value;
#else
  return *own;
#endif
}

}  // namespace constrain::cuda
