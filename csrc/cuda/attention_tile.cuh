// The work of a warp on a tile of keys and values, in the layout of FlashAttention-2 (Dao 2023): the scores, a result
// of tensor cores, are lane by lane the left operand of the next product.
#pragma once

#include <cmath>

#include "cuda/attention_rows.cuh"
#include "cuda/kv_formats.cuh"
#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr int kQueryPad = 32;  // padding between rows of queries, so that the lanes of a load use all banks

// Lane 4 g + t is member t of group g.
__device__ __forceinline__ int lane_group() { return threadIdx.x % kWarp / 4; }
__device__ __forceinline__ int lane_member() { return threadIdx.x % 4; }

// Softmax over some of the keys of one row: the largest score, and the sum of 2**(score - top).
struct Softmax {
  float top = -INFINITY;
  float sum = 0;
};

// 2**x, to two units in the last place.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Factor of sums relative to `top` that makes them relative to `new_top`.
__device__ __forceinline__ float rescale(float top, float new_top) {
  return top == -INFINITY ? 0.0f : power_of_two(top - new_top);
}

// Keys of a tile as rows of the product with the queries: packs at 32 c + 8 member of keys group and group + 8.
template <typename Format, int kDim>
struct KeyTile {
  typename Format::Pack pack[2][kDim / 32];
  Scales<kDim> scales[2];
};

// Values of a tile: packs at 64 j + 8 group of keys 2 member, 2 member + 1, and 8 more of each.
template <typename Format, int kDim>
struct ValueTile {
  typename Format::Pack pack[4][kDim / 64];
  Scales<kDim> scales[4];
};

// A lane's part of rows group and group + 8, over the keys that its warp has seen: columns 2 member and 2 member + 1 of
// every product, not yet divided by the sums of the softmax. Column n of product (j, i), which is number
// 8 j + i, is feature 64 j + 8 n + i.
template <int kDim>
struct RowSums {
  Softmax softmax[2];
  float out[kDim / 8][4] = {};
};

// Addresses of a lane's part of tiles: of keys or values, and of their scales.
struct LaneStates {
  const char* states;
  const char* scales;
  int64_t slot, scale_slot;  // bytes from a position to the next
};

template <typename Format>
__device__ __forceinline__ LaneStates lane_states(const PagesView& pages, const void* states, const void* scales,
                                                  int key, int feature) {
  const int64_t first = key * pages.slot_stride;
  return {static_cast<const char*>(states) + Format::bytes(first + feature),
          static_cast<const char*>(scales) + scale_bytes(first), Format::bytes(pages.slot_stride),
          scale_bytes(pages.slot_stride)};
}

// `offset` of the tile is in states; the first `keys` of its positions are loaded.
template <typename Format, int kDim>
__device__ __forceinline__ void load_keys(KeyTile<Format, kDim>& tile, const LaneStates& lane, int64_t offset, int keys,
                                          int dim) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool valid = lane_group() + 8 * half < keys;
    const char* at = lane.states + Format::bytes(offset) + 8 * half * lane.slot;
    tile.scales[half] =
        Format::template load_scales<kDim>(lane.scales + scale_bytes(offset) + 8 * half * lane.scale_slot, valid);
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c)
      tile.pack[half][c] = Format::load(at + Format::bytes(32 * c), valid && 32 * c + 8 * lane_member() < dim);
  }
}

template <typename Format, int kDim>
__device__ __forceinline__ void load_values(ValueTile<Format, kDim>& tile, const LaneStates& lane, int64_t offset,
                                            int keys, int dim) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = i % 2 + i / 2 * 8;
    const bool valid = 2 * lane_member() + key < keys;
    const char* at = lane.states + Format::bytes(offset) + key * lane.slot;
    tile.scales[i] =
        Format::template load_scales<kDim>(lane.scales + scale_bytes(offset) + key * lane.scale_slot, valid);
#pragma unroll
    for (int j = 0; j < kDim / 64; ++j)
      tile.pack[i][j] = Format::load(at + Format::bytes(64 * j), valid && 64 * j + 8 * lane_group() < dim);
  }
}

// Scores of rows group and group + 8, [..][0], [1] and [2], [3], for keys 2 member and 2 member + 1, and 8 more of
// each.
template <typename Format, int kDim, typename Element>
__device__ __forceinline__ void multiply_keys(float (&scores)[2][4],
                                              const Element (&queries)[kAttentionRows][kDim + kQueryPad],
                                              const KeyTile<Format, kDim>& keys) {
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    const int at = 32 * c + 8 * lane_member();
    const auto& query = *reinterpret_cast<const uint4*>(&queries[lane_group()][at]);
    const auto& query8 = *reinterpret_cast<const uint4*>(&queries[lane_group() + 8][at]);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint4 pack = Format::dequantize(keys.pack[n][c], keys.scales[n].pairs[c / 2], c % 2);
      multiply_add_packs<Element>(scores[n], query, query8, pack);
    }
  }
}

// Adds the scores of a tile, whose first key is `first`, to the softmax of the rows, and returns their weights as the
// left operand of a product.
template <typename Keys, int kDim>
__device__ __forceinline__ void weigh(uint32_t (&weights)[4], const float (&scores)[2][4], RowSums<kDim>& rows,
                                      const Range (&seen)[2], const PagedAttention& p, int first, int row_count) {
  const float per_cap = p.cap > 0 ? 1.0f / p.cap : 0.0f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * 8 >= row_count) break;
    Softmax& softmax = rows.softmax[half];
    float s[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] = scores[i / 2][half * 2 + i % 2] * (p.scale * Keys::kFactor);
    if (p.cap > 0) {
#pragma unroll
      for (float& each : s) each = p.cap * tanhf(each * per_cap);
    }
    float top = softmax.top;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first + i / 2 * 8 + lane_member() * 2 + i % 2;
      s[i] = key >= seen[half].begin && key < seen[half].end ? s[i] * kLog2e : -INFINITY;
      top = fmaxf(top, s[i]);
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float factor = rescale(softmax.top, top), base = top == -INFINITY ? 0.0f : top;
    softmax.top = top;
    softmax.sum *= factor;
#pragma unroll
    for (float& each : s) {
      each = power_of_two(each - base);
      softmax.sum += each;
    }
    weights[half] = pack2<typename Keys::Element>(s[0], s[1]);
    weights[half + 2] = pack2<typename Keys::Element>(s[2], s[3]);
    if (!__any_sync(kAllLanes, factor != 1.0f)) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      rows.out[n][half * 2] *= factor;
      rows.out[n][half * 2 + 1] *= factor;
    }
  }
}

__device__ __forceinline__ uint32_t pair_of(const uint4& a, const uint4& b, int element) {
  const uint32_t words_a[4] = {a.x, a.y, a.z, a.w}, words_b[4] = {b.x, b.y, b.z, b.w};
  return __byte_perm(words_a[element / 2], words_b[element / 2], element % 2 ? 0x7632 : 0x5410);
}

template <typename Format, int kDim>
__device__ __forceinline__ void add_values(RowSums<kDim>& rows, const uint32_t (&weights)[4],
                                           const ValueTile<Format, kDim>& values) {
#pragma unroll
  for (int j = 0; j < kDim / 64; ++j) {
    uint4 pack[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pack[i] = Format::dequantize(values.pack[i][j], values.scales[i].pairs[j], lane_group() / 4);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      multiply_add<typename Format::Element>(rows.out[j * 8 + i], weights,
                                             {pair_of(pack[0], pack[1], i), pair_of(pack[2], pack[3], i)});
  }
}

}  // namespace constrain::cuda
