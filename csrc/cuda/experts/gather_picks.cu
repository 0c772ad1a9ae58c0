#include <cstdint>

#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "gather_picks";
constexpr int kThreads = 256;

// A block gathers a part of the inputs of a row's expert, two elements a thread at a time.
template <typename T>
__global__ void __launch_bounds__(kThreads) gather_rows_of_picks(PickGather p) {
  wait_for_predecessor();
  release_successor();
  const int own = blockIdx.x, picks = p.rows * p.chosen;
  const int64_t expert = p.experts[own];
  int pick = 0;
  for (int start = 0; start < picks; start += kThreads) {
    const int other = start + threadIdx.x;
    const int64_t its = other < picks ? p.experts[other] : INT64_MAX;
    pick += __syncthreads_count(its < expert || (its == expert && other < own));
  }
  const int pairs = p.columns / 2;
  const T* x = static_cast<const T*>(p.x) + (p.of_picks ? pick : own / p.chosen) * p.x_stride;
  const int2* order = reinterpret_cast<const int2*>(p.order) + expert * pairs;
  uint32_t* out = static_cast<uint32_t*>(p.out) + int64_t{pick} * pairs;
  for (int i = blockIdx.y * kThreads + threadIdx.x; i < pairs; i += gridDim.y * kThreads) {
    const int2 inputs = order[i];
    out[i] = pack2<T>(to_float(x[inputs.x]), to_float(x[inputs.y]));
  }
}

}  // namespace

void gather_picks(const PickGather& p, cudaStream_t stream) {
  require(p.x && p.out && aligned(p.out, 16) && aligned(p.order, 8), kName, "null or misaligned pointer");
  require(p.columns > 0 && p.columns % 8 == 0, kName, "the number of columns must be a multiple of 8");
  const dim3 grid(static_cast<unsigned>(p.rows * p.chosen),
                  static_cast<unsigned>((p.columns / 2 + kThreads - 1) / kThreads));
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, gather_rows_of_picks<decltype(element)>, {grid, kThreads}, stream, p);
  });
}

}  // namespace constrain::cuda
