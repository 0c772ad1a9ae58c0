// Bulk copies from global to shared memory, and the barriers that tell of their arrival (compute capability 9.0 and
// later).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers are 8 bytes of shared memory, and named by their addresses.
constexpr int kBarrierBytes = 8;

// A barrier completes a phase when `arrivals` threads have arrived and all bytes that they expect have. Other threads
// of the block see it after a synchronization.
__device__ __forceinline__ void initialize_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes barriers of this thread known to the engine of the copies.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive_expecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits until the phase of this parity, of which the first is 0, has completed.
__device__ __forceinline__ void wait_for_phase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      " .reg .pred done;\n"
      "again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @done bra past;\n"
      " bra again;\n"
      "past:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Copies `bytes`, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace constrain::cuda
