#include <cstdint>

#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/experts/expert_tiles.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_down";

// A cluster computes 16 outputs of all rows, as one sum over the chosen experts, whose weights `inner` has been
// multiplied by. The preceding kernel has waited for the choice of experts before this one begins, so it can be read at
// once.
template <typename T, int kGroups>
__global__ void __launch_bounds__(kProductThreads, blocks_at_once(kGroups)) expert_down(ExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  const int first = blockIdx.x * kTile;
  chosen.find(p);
  const ExpertShare share(chosen.count());
  const ExpertSpan span{p.inner, p.width, p.width, p.down, p.size, first, share.begin, share.end};
  ExpertTiles<T, 1, kGroups, true> product(chosen, span, rings);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  write_sum<T, kGroups>(p, product.store(), first);
}

}  // namespace

void multiply_down(const ExpertMlp& p, cudaStream_t stream) {
  with_half_type(p.type, kName, [&](auto element) {
    with_row_groups(p.rows, [&](auto groups) {
      launch(kName, expert_down<decltype(element), groups>, shape_of_down(kName, p, blocks_at_once(groups), kRingBytes),
             stream, p);
    });
  });
}

}  // namespace constrain::cuda
