#include <algorithm>
#include <cstdint>

#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/experts/expert_tiles.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_gate_up";

// The blocks take turns at tiles of 16 outputs of the chosen experts.
template <typename T, int kGroups>
__global__ void __launch_bounds__(kProductThreads, blocks_at_once(kGroups)) expert_gate_up(ExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  wait_for_predecessor();
  release_successor();
  chosen.find(p);
  const int tiles = (p.width + kTile - 1) / kTile, spans = (p.size + kSpan - 1) / kSpan;
  for (int item = blockIdx.x; item < chosen.count() * tiles; item += gridDim.x) {
    const int place = item / tiles, first = item % tiles * kTile;
    const ExpertSpan span{p.x, p.x_stride, p.size, p.gate_up, p.width, first, place * spans, (place + 1) * spans};
    ExpertTiles<T, 2, kGroups, false, kRingBytes> product(chosen, span, rings);
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
