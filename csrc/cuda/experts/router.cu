#include <cstdint>

#include "cuda/cluster.cuh"
#include "cuda/experts/choose.cuh"
#include "cuda/experts/router.cuh"
#include "cuda/launch.cuh"
#include "cuda/linear/tile_product.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "route_normed";
static_assert(kMostRouted == kMostClusterBlocks * kTile);

using Element = __nv_bfloat16;
using Sums = BlockSums<1>;
using Logits = float[kMaxProductRows][kTile];

// Writes the part of the normalised rows that a block has.
__device__ __forceinline__ void write_normed(const Router& p, const Sums& sums) {
  const int packs = p.width / 8, each = (packs + cluster_size() - 1) / cluster_size();
  const int begin = cluster_rank() * each, end = min(packs, begin + each);
  for (int row = threadIdx.x / kWarp; row < p.routing.rows; row += kProductWarps) {
    const float scale = rsqrtf(sums.square(row) / p.width + p.eps);
    const auto* x = reinterpret_cast<const uint4*>(static_cast<const Element*>(p.x) + row * p.x_stride);
    auto* out = reinterpret_cast<uint4*>(static_cast<Element*>(p.normed) + int64_t{row} * p.width);
    for (int i = begin + threadIdx.x % kWarp; i < end; i += kWarp) {
      float value[8], factor[8];
      unpack8<Element>(x[i], value);
      unpack8<Element>(static_cast<const uint4*>(p.norm_weight)[i], factor);
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] *= scale * factor[j];
      out[i] = pack8<Element>(value);
    }
  }
}

__device__ __forceinline__ void write_logits(const Router& p, const Sums& sums, int first, Logits& logits) {
  const int i = threadIdx.x % kTile, row = threadIdx.x / kTile;
  if (row >= p.routing.rows || first + i >= p.routing.count) return;
  float logit = sums.product(0, i, row) * rsqrtf(sums.square(row) / p.width + p.eps);
  if (p.bias) logit += to_float(static_cast<const Element*>(p.bias)[first + i]);
  logits[row][i] = to_float(from_float<Element>(logit));
}

// A cluster has the logits of all rows, 16 experts a block. The warps of its first block choose for a row each.
__global__ void __launch_bounds__(kProductThreads) route_normed_rows(Router p) {
  extern __shared__ uint4 rings[];
  __shared__ Sums sums;
  __shared__ Logits logits;
  const int first = cluster_rank() * kTile;
  TileProduct<Element, 1, true> product({p.x, p.norm_weight, p.x_stride, p.routing.rows, p.width},
                                        {p.weight, p.routing.count, first, 0, p.width}, rings);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  product.store(sums);
  __syncthreads();
  write_logits(p, sums, first, logits);
  write_normed(p, sums);
  synchronize_cluster();
  const int row = threadIdx.x / kWarp;
  if (cluster_rank() == 0 && row < p.routing.rows) {
    choose_experts<kMostRouted / kWarp>(
        p.routing, row, [&](int expert) { return *in_block(&logits[row][expert % kTile], expert / kTile); });
  }
  leave_cluster();  // the first still reads the logits of the others
}

}  // namespace

void route_normed(const Router& p, cudaStream_t stream) {
  if (p.routing.rows <= 0) return;
  check_routing(p.routing, kMostRouted, kName);
  for (const void* pointer : {p.x, p.norm_weight, p.weight, static_cast<const void*>(p.normed)})
    require(pointer && aligned(pointer, 16), kName, "null or misaligned pointer");
  require(p.routing.rows <= kMaxProductRows, kName, "too many rows");
  require(p.width > 0 && p.width % 8 == 0 && p.x_stride % 8 == 0, kName, "the width must be a multiple of 8");
  require(p.width <= INT32_MAX / 4, kName, "the width is out of range");
  LaunchShape shape{dim3((p.routing.count + kTile - 1) / kTile), kProductThreads, kRingBytes};
  shape.cluster.x = shape.grid.x;
  launch(kName, route_normed_rows, shape, stream, p);
}

}  // namespace constrain::cuda
