#include <cstdint>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/linear/low_rank.cuh"
#include "cuda/linear/product.cuh"
#include "cuda/linear/tile_product.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "product";

template <typename T, bool kGated, bool kNorm>
__device__ __forceinline__ void write_output(const Product& p, const BlockSums<kGated ? 2 : 1>& sums, int first,
                                             int row) {
  const int i = threadIdx.x % kTile, output = first + i;
  if (output >= p.outputs || row >= p.rows) return;
  float scale = 1.0f;
  if constexpr (kNorm) scale = rsqrtf(sums.square(row) / p.inputs + p.eps);
  const auto total = [&](int m) {
    const float product = sums.product(m, i, row) * scale;
    return p.bias ? product + to_float(static_cast<const T*>(p.bias)[output + m * p.outputs]) : product;
  };
  float value = total(0);
  if constexpr (kGated) value = gated(value, total(1), p.gate);
  if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
}

// A block computes 16 outputs, of both matrices where gated. With an update, the first blocks project x; the others add
// the update at the end, when what they wait for is there.
template <typename T, bool kGated, bool kNorm, bool kUpdated>
__global__ void __launch_bounds__(kProductThreads, 2) multiply(Product p) {
  constexpr int kMatrices = kGated ? 2 : 1;
  using Tiles = TileProduct<T, kMatrices, kNorm>;
  extern __shared__ uint4 rings[];
  __shared__ BlockSums<kMatrices> sums;
  __shared__ UpTiles<T, kMatrices> up;
  const int projections = kUpdated ? num_projections(p) : 0, block = static_cast<int>(blockIdx.x) - projections;
  ProjectionBarrier barrier(p.update.signals, projections);
  if (kUpdated && block < 0) {
    project<T, kNorm>(p, blockIdx.x, 0, rings);
    return barrier.arrive();
  }

  const int first = block * kTile;
  Tiles product({p.x, p.norm_weight, p.x_stride, p.rows, p.inputs}, {p.weight, p.outputs, first, 0, p.inputs}, rings);
  if constexpr (kUpdated) up.prefetch(p, first);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  if constexpr (kUpdated) up.add(p, barrier, product.sum);
  product.store(sums);
  __syncthreads();
  if (kUpdated && threadIdx.x == kProductThreads - 1) barrier.leave();
  if (threadIdx.x < kTile * kMaxProductRows) write_output<T, kGated, kNorm>(p, sums, first, threadIdx.x / kTile);
}

template <typename T, bool kGated, bool kNorm>
void launch_multiply(const Product& p, cudaStream_t stream) {
  const unsigned blocks = (p.outputs + kTile - 1) / kTile;
  const LaunchShape shape{dim3(blocks + num_projections(p)), kProductThreads, kRingBytes};
  if (p.update.rank)
    launch(kName, multiply<T, kGated, kNorm, true>, shape, stream, p);
  else
    launch(kName, multiply<T, kGated, kNorm, false>, shape, stream, p);
}

template <typename T, bool kGated>
void launch_norm(const Product& p, cudaStream_t stream) {
  if (!p.norm_weight) return launch_multiply<T, kGated, false>(p, stream);
  // The norm's weight multiplies before the root divides, which float16 has no range for.
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return launch_multiply<T, kGated, true>(p, stream);
  require(false, kName, "a norm takes bfloat16");
}

void check(const Product& p) {
  require(p.x && p.weight && p.out, kName, "null pointer");
  for (const void* pointer : {p.x, p.norm_weight, p.weight}) require(aligned(pointer, 16), kName, "misaligned pointer");
  require(p.rows <= kMaxProductRows, kName, "too many rows");
  if (p.update.rank) check(p.update, kName);
  require(p.inputs > 0 && p.inputs % 8 == 0 && p.x_stride % 8 == 0, kName, "inputs must be a multiple of 8");
  require(p.outputs > 0 && p.outputs <= INT32_MAX / 2 - kTile, kName, "outputs out of range");
  require(p.inputs <= INT32_MAX / 4, kName, "inputs out of range");
}

}  // namespace

void product(const Product& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p);
  with_half_type(p.type, kName, [&](auto element) {
    if (p.gated)
      launch_norm<decltype(element), true>(p, stream);
    else
      launch_norm<decltype(element), false>(p, stream);
  });
}

}  // namespace constrain::cuda
