#include "cuda/bandwidth.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "read_all";
constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kThreads) read_packs(const uint4* data, int64_t packs, uint32_t* out) {
  wait_for_predecessor();
  release_successor();
  const int64_t stride = int64_t{gridDim.x} * kThreads * kUnroll;
  uint32_t all = 0;
  for (int64_t start = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x; start < packs; start += stride) {
    uint4 pack[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int64_t at = start + i * kThreads;
      pack[i] = at < packs ? __ldcs(data + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) all ^= pack[i].x ^ pack[i].y ^ pack[i].z ^ pack[i].w;
  }
  // Never true in a benchmark, but the compiler cannot know that.
  if (all == 0x9E3779B9u) *out = all;
}

}  // namespace

void read_all(const void* data, int64_t bytes, uint32_t* out, cudaStream_t stream) {
  if (bytes <= 0) return;
  require(data && out && aligned(data, 16) && bytes % 16 == 0, kName, "needs whole packs of 16 bytes");
  const int blocks = kBlocksPerMultiprocessor * device_attribute(cudaDevAttrMultiProcessorCount, kName);
  launch(kName, read_packs, {dim3(blocks), kThreads}, stream, static_cast<const uint4*>(data), bytes / 16, out);
}

}  // namespace constrain::cuda
