#include "cuda/gather.cuh"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "gather";
constexpr int kThreads = 256;
// With more rows, a block has a whole row, so that the norm of each is computed once.
constexpr int kFewRows = 64;

// A block gathers a part of a row, two elements a thread at a time. Each block of a row computes the row's norm.
template <typename T>
__global__ void __launch_bounds__(kThreads) gather_rows(GatherRows p) {
  __shared__ float scratch[kWarp];
  const int pairs = p.columns / 2, step = gridDim.y * kThreads;
  const auto* order = reinterpret_cast<const int2*>(p.order);
  int i = blockIdx.y * kThreads + threadIdx.x;
  int2 inputs = i < pairs ? order[i] : int2{};  // which no kernel writes
  wait_for_predecessor();
  release_successor();
  const T* x = static_cast<const T*>(p.x) + blockIdx.x * p.x_stride;
  const auto* weight = static_cast<const T*>(p.weight);
  auto* out = reinterpret_cast<uint32_t*>(static_cast<T*>(p.out) + int64_t{blockIdx.x} * p.columns);

  float scale = 1;
  if (weight) {
    float squares = 0;
    for (int pack = threadIdx.x; pack < p.width / kPack<T>; pack += kThreads) {
      float value[8];
      unpack8<T>(reinterpret_cast<const uint4*>(x)[pack], value);
#pragma unroll
      for (float each : value) squares += each * each;
    }
    scale = rsqrtf(block_sum(squares, scratch) / p.width + p.eps);
  }
  while (i < pairs) {
    float first = to_float(x[inputs.x]), second = to_float(x[inputs.y]);
    if (weight) {
      first *= scale * to_float(weight[inputs.x]);
      second *= scale * to_float(weight[inputs.y]);
    }
    out[i] = pack2<T>(first, second);
    i += step;
    if (i < pairs) inputs = order[i];
  }
}

void check(const GatherRows& p) {
  require(p.x && p.order && p.out, kName, "null pointer");
  for (const void* pointer : {p.x, static_cast<const void*>(p.order), p.weight, static_cast<const void*>(p.out)})
    require(aligned(pointer, 16), kName, "misaligned pointer");
  require(p.width > 0 && p.width % 8 == 0 && p.x_stride % 8 == 0, kName, "the width must be a multiple of 8");
  require(p.columns > 0 && p.columns % 2 == 0, kName, "the number of columns must be even");
  require(p.rows <= INT32_MAX, kName, "too many rows");
}

}  // namespace

void gather(const GatherRows& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p);
  const unsigned parts = p.rows > kFewRows ? 1 : (p.columns / 2 + kThreads - 1) / kThreads;
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, gather_rows<decltype(element)>, {dim3(static_cast<unsigned>(p.rows), parts), kThreads}, stream, p);
  });
}

}  // namespace constrain::cuda
