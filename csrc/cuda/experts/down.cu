#include <cstdint>

#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/experts/expert_tiles.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_down";

// Bytes of the rings where experts are narrow. A block then has so little to read that it matters most how early it
// begins, and the preceding kernel leaves little room. Measured on an H200, for widths from 512 to 14,336: one row is
// faster with the first up to a width of 4,096, other numbers with the second up to 2,048; wider experts need rings
// that have more on its way.
constexpr int kRowRing = 32 << 10, kRowsRing = 16 << 10;
constexpr int kRowWidth = 4096, kRowsWidth = 2048;
constexpr int kNarrowBlocks = 3;  // on a multiprocessor, with registers for one more of them or of the preceding kernel

constexpr int blocks_of_registers(int groups, int ring) { return ring < kRingBytes ? 4 : blocks_at_once(groups); }

// A cluster computes 16 outputs of all rows, as one sum over the chosen experts, whose weights `inner` has been
// multiplied by. The preceding kernel has waited for the choice of experts before this one begins, so it can be read at
// once.
template <typename T, int kGroups, int kRing>
__global__ void __launch_bounds__(kProductThreads, blocks_of_registers(kGroups, kRing)) expert_down(ExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  const int first = blockIdx.x * kTile;
  chosen.find(p);
  const ExpertShare share(chosen.count() * ((p.width + kSpan - 1) / kSpan));
  const ExpertSpan span{p.inner, p.width, p.width, p.down, p.size, first, share.begin, share.end};
  ExpertTiles<T, 1, kGroups, true, kRing> product(chosen, span, rings);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  write_sum<T, kGroups>(p, product.store(), first);
}

template <typename T, int kGroups, int kRing>
void launch_down(const ExpertMlp& p, int each, cudaStream_t stream) {
  launch(kName, expert_down<T, kGroups, kRing>, shape_of_down(kName, p, each, kRing), stream, p);
}

}  // namespace

void multiply_down(const ExpertMlp& p, cudaStream_t stream) {
  with_half_type(p.type, kName, [&](auto element) {
    with_row_groups(p.rows, [&](auto groups) {
      using T = decltype(element);
      if constexpr (groups == 1) {
        if (p.rows == 1 && p.width <= kRowWidth) return launch_down<T, groups, kRowRing>(p, kNarrowBlocks, stream);
        if (p.rows > 1 && p.width <= kRowsWidth) return launch_down<T, groups, kRowsRing>(p, kNarrowBlocks, stream);
      }
      launch_down<T, groups, kRingBytes>(p, blocks_after(p.rows, blocks_at_once(groups)), stream);
    });
  });
}

}  // namespace constrain::cuda
