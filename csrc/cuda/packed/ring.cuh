// A warp's ring of stages in shared memory, which fill while the warp works on others.
#pragma once

#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/packed/bulk.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

// Stages arrive in the order in which they were asked for. Each has records, for which one lane asks where there are
// bulk copies, and what the lanes copy until `end_stage`.
template <int kDepth>
class Ring {
 public:
  // `barriers` has kDepth, of this warp.
  __device__ __forceinline__ Ring(uint8_t* stages, int stage_bytes, uint64_t* barriers)
      : stages_(stages),
        stage_bytes_(stage_bytes),
        address_(shared_address(stages)),
        barriers_(shared_address(barriers)) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) initialize_barrier(barriers_ + d * kBarrierBytes, 1);
      publish_barriers();
    }
    __syncwarp();
#endif
  }

  __device__ __forceinline__ int slot() const { return slot_; }
  __device__ __forceinline__ uint8_t* at(int slot) const { return stages_ + slot * stage_bytes_; }
  __device__ __forceinline__ const uint8_t* current() const { return at(slot_); }

  // Asks for kParts of a stage, of `bytes` each, at a distance of `from_step` where they come from and of `to_step` in
  // the stage.
  template <int kParts>
  __device__ __forceinline__ void ask(int slot, const uint8_t* from, int64_t from_step, int to_step, int bytes) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x % kWarp == 0) {
      const uint32_t barrier = barriers_ + slot * kBarrierBytes, to = address_ + slot * stage_bytes_;
      arrive_expecting(barrier, kParts * bytes);
#pragma unroll
      for (int m = 0; m < kParts; ++m) copy_bulk(to + m * to_step, from + m * from_step, bytes, barrier);
    }
#else
    const int first = threadIdx.x % kWarp * 16;
#pragma unroll
    for (int m = 0; m < kParts; ++m) {
#pragma unroll 4
      for (int i = first; i < bytes; i += kWarp * 16)
        copy_async(reinterpret_cast<uint4*>(at(slot) + m * to_step + i), from + m * from_step + i, true);
    }
#endif
  }

  // Waits for the current stage.
  __device__ __forceinline__ void wait() const {
    wait_for_stage<kDepth - 1>();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    wait_for_phase(barriers_ + slot_ * kBarrierBytes, parity_);
#endif
  }

  __device__ __forceinline__ void next() {
    if (++slot_ < kDepth) return;
    slot_ = 0;
    parity_ ^= 1;
  }

 private:
  uint8_t* stages_;
  int stage_bytes_;
  uint32_t address_, barriers_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace constrain::cuda
