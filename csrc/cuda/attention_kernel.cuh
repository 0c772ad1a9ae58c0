// The kernel of attention over a paged KV cache.
#pragma once

#include <algorithm>

#include "cuda/attention_join.cuh"
#include "cuda/attention_launch.cuh"
#include "cuda/attention_rows.cuh"
#include "cuda/attention_tile.cuh"
#include "cuda/kv_formats.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {

// If the warps of a block have at most this many rounds of tiles, all tiles are prefetched into the L2 cache before the
// preceding kernel has ended: later requests would queue behind those of the next kernel for its weights.
constexpr int kMostRoundsAhead = 4;

// A block computes attention of one block of rows over one split of the keys; its warps take turns at tiles. The
// results of warps are joined in shared memory, those of splits by the block that ends last.
template <typename T, typename Keys, typename Values, int kDim>
__global__ void __launch_bounds__(kMostAttentionWarps<kDim>* kWarp, 1) attend(AttentionLaunch a) {
  using Element = typename Keys::Element;
  constexpr int kRows = kAttentionRows, kKeys = kAttentionKeys, kMostWarps = kMostAttentionWarps<kDim>;
  __shared__ alignas(16) Element queries[kRows][kDim + kQueryPad];
  __shared__ Softmax softmaxes[kMostWarps][kRows];
  __shared__ bool is_last;
  extern __shared__ float outputs[];
  const PagedAttention& p = a.p;
  const PagesView& pages = p.pages;
  const int splits = gridDim.x, split = blockIdx.x, batch = blockIdx.z;
  const int kv_head = blockIdx.y / a.row_blocks, first_row = blockIdx.y % a.row_blocks * kRows;
  const int warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp;
  const int dim = pages.head_dim, row_count = rows_of(p, first_row);

  const int length = p.lengths[batch];
  const Range seen[2] = {seen_by(p, make_row(p, kv_head, first_row + lane_group()), length),
                         seen_by(p, make_row(p, kv_head, first_row + lane_group() + 8), length)};
  const int start = seen_by(p, make_row(p, kv_head, first_row), length).begin / kKeys * kKeys;
  const int tiles = (length - start + kKeys - 1) / kKeys;
  const int whole = max(kLeastTiles, 3 * warps / 2);  // one block is faster with these than two that join
  const int per_split = tiles <= whole ? whole : max(kLeastTiles, (tiles + splits - 1) / splits);
  const int active = max(1, (tiles + per_split - 1) / per_split);
  const int tile_begin = split * per_split, tile_end = min(tiles, tile_begin + per_split);

  // The offset of a tile's first key for this head, which is also that of its first value, and its number of keys.
  const auto offset_of = [&](int tile) {
    const int position = start + tile * kKeys;
    const int64_t page =
        tile < tile_end ? pages.block_table[batch * pages.block_table_stride + position / pages.page_size] : 0;
    return page * pages.page_stride + position % pages.page_size * pages.slot_stride + kv_head * pages.head_stride;
  };
  const auto keys_of = [&](int tile) { return tile < tile_end ? length - start - tile * kKeys : 0; };

  int tile = tile_begin + warp;
  int64_t offset = offset_of(tile);
  const int rounds_ahead = a.spread && tile_end - tile_begin <= kMostRoundsAhead * warps ? kMostRoundsAhead : 1;
  for (int round = 0; round < rounds_ahead && tile + round * warps < tile_end; ++round) {
    const int64_t ahead = round == 0 ? offset : offset_of(tile + round * warps);
    prefetch_tile<Keys::kBits>(pages, pages.keys, ahead);
    prefetch_tile<Values::kBits>(pages, pages.values, ahead);
  }
  if (split < active) prefetch_angles<T>(p, length);
  wait_for_predecessor();
  release_successor();
  if (split >= active) return;

  KeyTile<Keys, kDim> keys;
  ValueTile<Values, kDim> values;
  const LaneStates lane_keys = lane_states<Keys>(pages, pages.keys, pages.key_scales, lane_group(), 8 * lane_member());
  const LaneStates lane_values =
      lane_states<Values>(pages, pages.values, pages.value_scales, 2 * lane_member(), 8 * lane_group());
  load_queries<T, Keys, kDim>(p, kv_head, first_row, length, queries);
  load_keys(keys, lane_keys, offset, keys_of(tile), dim);
  store_new_states<T, Keys, Values, kDim>(p, kv_head, length, start + tile_begin * kKeys, start + tile_end * kKeys);
  __syncthreads();
  const bool has_new = keys_of(tile) > 0 && keys_of(tile) < kKeys + p.queries;
  if (has_new) load_keys(keys, lane_keys, offset, keys_of(tile), dim);

  // With heads of 256 the registers do not suffice for keys and values at the same time.
  constexpr bool kBoth = kDim <= 128;
  RowSums<kDim> rows;
  for (; tile < tile_end; tile += warps) {
    if constexpr (kBoth) load_values(values, lane_values, offset, keys_of(tile), dim);
    float scores[2][4] = {};
    multiply_keys(scores, queries, keys);
    if constexpr (!kBoth) load_values(values, lane_values, offset, keys_of(tile), dim);
    offset = offset_of(tile + warps);
    if constexpr (kBoth) load_keys(keys, lane_keys, offset, keys_of(tile + warps), dim);
    uint32_t weights[4] = {};
    weigh<Keys>(weights, scores, rows, seen, p, start + tile * kKeys, row_count);
    add_values(rows, weights, values);
    if constexpr (!kBoth) load_keys(keys, lane_keys, offset, keys_of(tile + warps), dim);
  }

  const WarpParts<kDim, kMostWarps> parts{outputs, softmaxes, row_count};
  parts.leave(warp, rows);
  __syncthreads();
  const int64_t block = int64_t{batch} * gridDim.y + blockIdx.y;
  auto* split_parts = static_cast<SplitParts<kDim>*>(a.partials) + block * splits;
  const auto write = [&](int i, const Part& part) {
    write_output<T, Values>(p, batch, make_row(p, kv_head, first_row + i / kDim), i % kDim, normalised(part));
  };
  for (int i = 4 * threadIdx.x; i < row_count * kDim; i += 4 * blockDim.x) {
    const Part part = parts.joined(warps, i);
    if (active == 1)
      write(i, part);
    else
      split_parts[split].leave(i, part);
  }
  if (active == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&a.counters[block], 1) == active - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (threadIdx.x == 0) a.counters[block] = 0;
  for (int i = 4 * threadIdx.x; i < row_count * kDim; i += 4 * blockDim.x)
    write(i, join_splits(split_parts, active, i));
}

template <typename T, typename Keys, typename Values, int kDim>
void launch_attention(const AttentionLaunch& a, const AttentionShape& shape, cudaStream_t stream) {
  const dim3 grid(shape.splits, a.p.pages.kv_heads * shape.row_blocks, a.p.batch);
  launch(kAttentionName, attend<T, Keys, Values, kDim>,
         {grid, static_cast<unsigned>(shape.warps * kWarp), shape.shared_bytes}, stream, a);
}

}  // namespace constrain::cuda
