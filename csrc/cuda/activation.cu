#include <cstdint>

#include "cuda/activation.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "gated_activation";
constexpr int kThreads = 256;

// One thread for each 16 bytes of the result.
template <typename T>
__global__ void __launch_bounds__(kThreads) gate_rows(GatedRows p) {
  wait_for_predecessor();
  release_successor();
  const int packs = p.width / kPack<T>;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.rows * packs) return;
  const int64_t row = index / packs, pack = index % packs;
  const auto* gate_up = static_cast<const uint4*>(p.gate_up) + row * 2 * packs;
  float gate[8], up[8];
  unpack8<T>(gate_up[pack], gate);
  unpack8<T>(gate_up[packs + pack], up);
#pragma unroll
  for (int j = 0; j < 8; ++j) gate[j] = gated(gate[j], up[j], p.gate);
  static_cast<uint4*>(p.out)[index] = pack8<T>(gate);
}

}  // namespace

void gated_activation(const GatedRows& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.gate_up && p.out, kName, "null pointer");
  require(aligned(p.gate_up, 16) && aligned(p.out, 16), kName, "misaligned pointer");
  require(p.width > 0 && p.width % 8 == 0, kName, "the width must be a multiple of 8");
  const int64_t blocks = (p.rows * (p.width / 8) + kThreads - 1) / kThreads;
  require(blocks <= INT32_MAX, kName, "too many elements");
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, gate_rows<decltype(element)>, {dim3(static_cast<unsigned>(blocks)), kThreads}, stream, p);
  });
}

}  // namespace constrain::cuda
