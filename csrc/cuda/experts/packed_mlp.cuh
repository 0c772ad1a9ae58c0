// Kernels of experts whose weights are packed. Each file of one kind of codes compiles its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/experts/packed_tiles.cuh"
#include "cuda/launch.cuh"
#include "cuda/packed/codes.cuh"

namespace constrain::cuda {

constexpr const char* kPackedExpertName = "packed_expert_mlp";

// Blocks that share a multiprocessor.
constexpr int packed_blocks(int groups) { return groups == 1 ? 3 : 2; }

// As `expert_gate_up`: the blocks take turns at tiles of 16 outputs of the chosen experts.
template <typename T, typename Format, int kGroups>
__global__ void __launch_bounds__(kProductThreads, packed_blocks(kGroups)) packed_gate_up(PackedExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  wait_for_predecessor();
  release_successor();
  chosen.find(p.mlp);
  const int tiles = p.mlp.width / kPackedTile;
  for (int item = blockIdx.x; item < chosen.count() * tiles; item += gridDim.x) {
    const int place = item / tiles, tile = item % tiles;
    const bool of_picks = p.gate_up_order;
    const PackedExpertSpan span{p.mlp.x, p.mlp.x_stride, of_picks, p.gate_up, 2 * tiles, tile, place, place + 1};
    PackedExpertTiles<T, Format, 2, kGroups> product(chosen, span, rings);
    product.prefetch();
    product.run();
    write_inner<T, kGroups>(p.mlp, chosen, product.store(), place, tile * kPackedTile);
    __syncthreads();  // the rings are filled again
  }
}

// As `expert_down`: a cluster computes 16 outputs of all rows, as one sum over the chosen experts.
template <typename T, typename Format, int kGroups>
__global__ void __launch_bounds__(kProductThreads, packed_blocks(kGroups)) packed_down(PackedExpertMlp p) {
  extern __shared__ uint4 rings[];
  __shared__ ChosenExperts chosen;
  chosen.find(p.mlp);
  const int tiles = p.mlp.size / kPackedTile, tile = blockIdx.x;
  const ExpertShare share(chosen.count());
  const PackedExpertSpan span{p.mlp.inner, p.down.inputs, true, p.down, tiles, tile, share.begin, share.end};
  PackedExpertTiles<T, Format, 1, kGroups> product(chosen, span, rings);
  product.prefetch();
  wait_for_predecessor();
  release_successor();
  product.run();
  write_sum<T, kGroups>(p.mlp, product.store(), tile * kPackedTile);
}

// Calls `use` with the number of groups of rows for which a kernel is compiled, at least those of `rows`.
template <typename Use>
void with_packed_groups(int rows, Use&& use) {
  if (rows <= kRowGroup) return use(std::integral_constant<int, 1>{});
  use(std::integral_constant<int, kMaxPackedExpertRows / kRowGroup>{});
}

// As `with_groups`, for the forms in which experts are stored: integers of eight bits without zero points, MXFP4, and
// floats of eight bits with scales of 128 inputs.
template <typename Kind, typename Use>
void with_expert_groups(const RecordShape& shape, Use&& use) {
  if constexpr (Kind::kCodes == Codes::int4 || Kind::kSubscales) {
    with_groups<Kind>(shape, use);
  } else {
    constexpr bool kSmall = Kind::kCodes != Codes::float8, kLarge = Kind::kCodes != Codes::float4;
    require(!shape.zeros, kPackedExpertName, "no zero points with these codes");
    if constexpr (kSmall) {
      if (shape.group == 32) return use(Grouped<Kind, 32, false>{});
    }
    if constexpr (kLarge) {
      if (shape.group == 128) return use(Grouped<Kind, 128, false>{});
    }
    require(false, kPackedExpertName, "unsupported groups");
  }
}

template <typename Kind>
void launch_packed_gate_up(const PackedExpertMlp& p, cudaStream_t stream) {
  const int64_t tiles = int64_t{std::min(p.mlp.count, p.mlp.rows * p.mlp.chosen)} * (p.mlp.width / kPackedTile);
  const int64_t room = device_attribute(cudaDevAttrMultiProcessorCount, kPackedExpertName);
  with_half_type(p.mlp.type, kPackedExpertName, [&](auto element) {
    with_expert_groups<Kind>(p.gate_up.shape, [&](auto format) {
      with_packed_groups(p.mlp.rows, [&](auto groups) {
        using Product = PackedExpertTiles<decltype(element), decltype(format), 2, groups>;
        const auto blocks = static_cast<unsigned>(std::min(tiles, room * packed_blocks(groups)));
        launch(kPackedExpertName, packed_gate_up<decltype(element), decltype(format), groups>,
               {dim3(blocks), kProductThreads, Product::shared_bytes(p.gate_up.shape)}, stream, p);
      });
    });
  });
}

template <typename Kind>
void launch_packed_down(const PackedExpertMlp& p, cudaStream_t stream) {
  with_half_type(p.mlp.type, kPackedExpertName, [&](auto element) {
    with_expert_groups<Kind>(p.down.shape, [&](auto format) {
      with_packed_groups(p.mlp.rows, [&](auto groups) {
        using Product = PackedExpertTiles<decltype(element), decltype(format), 1, groups>;
        launch(kPackedExpertName, packed_down<decltype(element), decltype(format), groups>,
               shape_of_down(kPackedExpertName, p.mlp, blocks_after(p.mlp.rows, packed_blocks(groups)),
                             Product::shared_bytes(p.down.shape)),
               stream, p);
      });
    });
  });
}

// The two products with weights of one kind of codes.
struct PackedExpertKernels {
  void (*gate_up)(const PackedExpertMlp&, cudaStream_t);
  void (*down)(const PackedExpertMlp&, cudaStream_t);
};

template <typename Kind>
constexpr PackedExpertKernels packed_expert_kernels() {
  return {launch_packed_gate_up<Kind>, launch_packed_down<Kind>};
}

PackedExpertKernels int4_experts();
PackedExpertKernels int8_experts();
PackedExpertKernels float8_experts();
PackedExpertKernels float4_experts();
PackedExpertKernels scaled_float4_experts();

}  // namespace constrain::cuda
