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

// Waits until no block of the cluster reads shared memory any more. What has been read must have been used before.
__device__ __forceinline__ void leave_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The number of blocks of the cluster, and that of this block among them.
__device__ __forceinline__ int cluster_size() {
  int size = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %cluster_nctarank;" : "=r"(size));
#endif
  return size;
}

__device__ __forceinline__ int cluster_rank() {
  int rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

// The place of `own`, which is in shared memory, in the shared memory of another block of the cluster.
template <typename Value>
__device__ __forceinline__ Value* in_block(Value* own, int block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint64_t place;
  asm("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(reinterpret_cast<uint64_t>(own)), "r"(block));
  return reinterpret_cast<Value*>(place);
#else
  return own;
#endif
}

}  // namespace constrain::cuda
