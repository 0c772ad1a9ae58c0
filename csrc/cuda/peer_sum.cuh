// Sums of small tensors over the GPUs of a host, by kernels that write to each other's memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda/types.cuh"

namespace constrain::cuda {

// The tensors of one GPU in a sum, contiguous and aligned to 16 bytes.
struct Summand {
  void* part;            // becomes the sum over all GPUs, plus the residual
  const void* residual;  // null for none
  cudaStream_t stream;
};

// Memory of several GPUs, each of which can write to that of all others.
class PeerSum {
 public:
  static constexpr int kMaxRanks = 8;
  static constexpr int kMaxBytes = 256 << 10;

  // Throws std::invalid_argument where the devices are not different ones, std::runtime_error where CUDA refuses.
  explicit PeerSum(std::vector<int> devices);
  ~PeerSum();
  PeerSum(const PeerSum&) = delete;
  PeerSum& operator=(const PeerSum&) = delete;

  // Queues a kernel on the stream of every GPU. Each adds up the same values in the same order, in float32, and rounds
  // once, so that all have the same result. Calls must be queued in the same order on all GPUs.
  void add(const std::vector<Summand>& summands, int64_t bytes, FloatType type) const;

 private:
  void release() noexcept;

  std::vector<int> devices_;
  std::vector<void*> memory_;
};

}  // namespace constrain::cuda
