#include <algorithm>
#include <cstdint>

#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_tiles.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_gate_up";

__device__ __forceinline__ float weight_of(const ExpertMlp& p, int row, int expert) {
  int j = 0;
  while (p.experts[row * p.chosen + j] != expert) ++j;
  return p.weights[row * p.chosen + j];
}

// Writes 16 outputs of all rows that have chosen an expert, times their weights.
template <typename T, int kGroups>
__device__ __forceinline__ void write_inner(const ExpertMlp& p, const ChosenExperts& chosen,
                                            const ExpertSums<2, kGroups>& sums, int place, int first) {
  const int i = threadIdx.x % kTile, output = first + i, expert = chosen.expert(place);
  if (output >= p.width) return;
  const uint32_t rows = chosen.rows(place);
  const auto total = [&](int m, int row) {
    const float product = sums.product(m, i, row);
    const auto* bias = static_cast<const T*>(p.gate_up_bias) + (int64_t{expert} * 2 + m) * p.width + output;
    return p.gate_up_bias ? product + to_float(*bias) : product;
  };
  for (int row = threadIdx.x / kTile; row < p.rows; row += kProductThreads / kTile) {
    if (!(rows >> row & 1)) continue;
    const float value = gated(total(0, row), total(1, row), p.gate) * weight_of(p, row, expert);
    static_cast<T*>(p.inner)[int64_t{chosen.pick(place, rows, row)} * p.width + output] = from_float<T>(value);
  }
}

// The blocks take turns at tiles of 16 outputs of the chosen experts.
template <typename T, int kGroups>
__global__ void __launch_bounds__(kProductThreads, blocks_at_once(kGroups)) expert_gate_up(ExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  wait_for_predecessor();
  release_successor();
  chosen.find(p);
  const int tiles = (p.width + kTile - 1) / kTile;
  for (int item = blockIdx.x; item < chosen.count() * tiles; item += gridDim.x) {
    const int place = item / tiles, first = item % tiles * kTile;
    const ExpertSpan span{p.x, p.x_stride, p.size, p.gate_up, p.width, first, place, place + 1};
    ExpertTiles<T, 2, kGroups, false> product(chosen, span, rings);
    product.prefetch();
    product.run();
    write_inner<T, kGroups>(p, chosen, product.store(), place, first);
    __syncthreads();  // the rings are filled again
  }
}

}  // namespace

void multiply_gate_up(const ExpertMlp& p, cudaStream_t stream) {
  const int tiles = (p.width + kTile - 1) / kTile, most = std::min(p.count, p.rows * p.chosen);
  const int room = device_attribute(cudaDevAttrMultiProcessorCount, kName);
  with_half_type(p.type, kName, [&](auto element) {
    with_row_groups(p.rows, [&](auto groups) {
      const auto blocks = std::min(int64_t{most} * tiles, int64_t{room} * blocks_at_once(groups));
      launch(kName, expert_gate_up<decltype(element), groups>,
             {dim3(static_cast<unsigned>(blocks)), kProductThreads, kRingBytes}, stream, p);
    });
  });
}

}  // namespace constrain::cuda
