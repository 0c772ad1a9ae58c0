// The kernel for products of packed weights with 9 to 64 rows.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/cluster.cuh"
#include "cuda/launch.cuh"
#include "cuda/packed/few_rows.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kManyTiles = 2;  // of a warp
constexpr int kTileWarps = 4;  // that share rows of x
constexpr int kSpanWarps = 2;  // that share tiles, and take turns at spans
constexpr int kManyThreads = kTileWarps * kSpanWarps * kWarp;
constexpr int kTeam = kTileWarps * kWarp;  // threads that share rows of x
constexpr int kBlockTiles = kTileWarps * kManyTiles;
constexpr int kSumStride = kBlockTiles * kPackedTile + 4;  // floats; padded so that lanes use different banks
constexpr int kSpanChunks = kPackedSpan * 2 / kChunk;      // of a row of x in a span

constexpr int kManyBlocks = 2;  // that share a multiprocessor, in which neither waits for the other

// Stages of a ring; as many as let the blocks of a multiprocessor have their shared memory.
template <typename Format, int kColumns>
constexpr int kManyDepth = Format::kSteps == 2 ? 2
                           : kColumns <= 2     ? 4
                                               : 3;

// Waits for the threads of a team, whose number is 0 or 1.
__device__ __forceinline__ void synchronize_team(int team) {
  if (team == 0)
    asm volatile("bar.sync 1, %0;" ::"n"(kTeam) : "memory");
  else
    asm volatile("bar.sync 2, %0;" ::"n"(kTeam) : "memory");
}

// Index of a chunk of a row of x, swizzled so that the lanes of a load use different banks.
__device__ __forceinline__ int place_chunk(int row, int chunk) { return row * kSpanChunks + (chunk ^ (row % 2 * 4)); }

__device__ __forceinline__ float4 add4(const float4& x, const float4& y) {
  return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

// A block computes eight tiles of outputs for 8 * kColumns rows, over the spans that it does not leave to the other
// blocks of its cluster. Where gated, each warp has the same tile of both matrices. Two teams of warps take turns at
// the spans; a team shares the rows of x. The sums of all are added at the end, each block adding those of some of the
// outputs.
template <typename T, typename Format, int kColumns>
__global__ void __launch_bounds__(kManyThreads, kManyBlocks) multiply_many_rows(PackedProduct p) {
  constexpr int kDepth = kManyDepth<Format, kColumns>, kRows = kColumns * kRowsOfProduct;
  extern __shared__ uint4 memory[];  // for each team and stage, the records of its warps and rows of x; then sums

  const RecordLayout<Format> layout(p.weight.shape);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int team = warp / kTileWarps, tile_warp = warp % kTileWarps, in_team = threadIdx.x % kTeam;
  const int spans = p.weight.spans(), tiles = p.weight.tiles(), chunks = layout.bytes / kChunk;
  const int splits = gridDim.y, rank = blockIdx.y, first_row = blockIdx.z * kRows;
  const int first_span = rank * kSpanWarps + team, span_step = splits * kSpanWarps;
  const int block_tile = blockIdx.x * (p.gated ? kTileWarps : kBlockTiles);
  const auto tile_of = [&](int m) { return block_tile + tile_warp + m * (p.gated ? tiles / 2 : kTileWarps); };
  const int record_bytes = kTileWarps * kManyTiles * layout.bytes, stage_bytes = record_bytes + kRows * kPackedSpan * 2;
  const int own_records = tile_warp * kManyTiles * layout.bytes;
  uint8_t* ring = reinterpret_cast<uint8_t*>(memory) + team * kDepth * stage_bytes;

  // The next records and rows to fetch. Tiles and rows beyond the last are not fetched, and their outputs not written.
  const int64_t tile_step = int64_t{p.gated ? tiles / 2 : kTileWarps} * spans * layout.bytes;
  const int own_tiles = tile_of(0) >= tiles ? 0 : tile_of(1) >= tiles ? 1 : kManyTiles;
  const uint8_t* record = static_cast<const uint8_t*>(p.weight.records) +
                          (int64_t{tile_of(0)} * spans + first_span) * layout.bytes + lane * kChunk;
  int left = p.weight.inputs - first_span * kPackedSpan;
  const auto fetch_records = [&](int slot) {
#pragma unroll
    for (int m = 0; m < kManyTiles; ++m) {
      if (left <= 0 || m >= own_tiles) continue;
      const auto* from = reinterpret_cast<const uint4*>(record + m * tile_step);
      auto* to = reinterpret_cast<uint4*>(ring + slot * stage_bytes + own_records + m * layout.bytes) + lane;
      constexpr int kFull = RecordLayout<Format>::kCodeBytes / (kWarp * kChunk);
#pragma unroll
      for (int i = 0; i < kFull; ++i) copy_async(to + i * kWarp, from + i * kWarp, true);
      if (kFull * kWarp + lane < chunks) copy_async(to + kFull * kWarp, from + kFull * kWarp, true);
    }
    record += span_step * layout.bytes;
    left -= span_step * kPackedSpan;
  };
  const int chunk = in_team % kSpanChunks, chunk_row = in_team / kSpanChunks;
  int input = first_span * kPackedSpan + chunk * 8;
  const int own_row = first_row + chunk_row;
  const T* row = static_cast<const T*>(p.x) + own_row * p.x_stride;
  const auto fetch_rows = [&](int slot) {
    auto* to = reinterpret_cast<uint4*>(ring + slot * stage_bytes + record_bytes);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const bool valid = input < p.weight.inputs && own_row + n * kRowsOfProduct < p.rows;
      const T* from = row + n * kRowsOfProduct * p.x_stride + input;
      copy_async(to + place_chunk(n * kRowsOfProduct + chunk_row, chunk), valid ? from : p.x, valid);
    }
    input += span_step * kPackedSpan;
    end_stage();
  };

#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d) fetch_records(d);
  wait_for_predecessor();
  release_successor();
#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d) fetch_rows(d);

  float sum[kManyTiles][kColumns][4] = {};
  const int turns = (spans - first_span + span_step - 1) / span_step;
  int slot = 0;
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    wait_for_stage<kDepth - 2>();
    synchronize_team(team);  // all have the stage, and have done with the one before, which is overwritten now
    const int previous = slot == 0 ? kDepth - 1 : slot - 1;
    fetch_records(previous);
    fetch_rows(previous);
    const uint8_t* stage = ring + slot * stage_bytes;
    const auto* columns = reinterpret_cast<const uint4*>(stage + record_bytes);
    multiply_span<T, Format, false, kManyTiles, kColumns>(
        sum, stage + own_records, layout.bytes, layout, lane,
        [&](int quarter, int n) { return columns[place_chunk(n * kRowsOfProduct + group, quarter * 4 + member)]; });
    slot = slot == kDepth - 1 ? 0 : slot + 1;
  }

  wait_for_stage<0>();
  __syncthreads();
  float* sums = reinterpret_cast<float*>(memory);  // [kSpanWarps][kRows][kSumStride]
#pragma unroll
  for (int m = 0; m < kManyTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = n * kRowsOfProduct + member * 2 + i % 2;
        const int place = (m * kTileWarps + tile_warp) * kPackedTile;
        sums[(team * kRows + row) * kSumStride + place + group + i / 2 * 8] = sum[m][n][i];
      }
    }
  }
  synchronize_cluster();
  const int all = p.gated ? p.weight.outputs / 2 : p.weight.outputs;
  const int block_outputs = kPackedTile * (p.gated ? kTileWarps : kBlockTiles), packs = block_outputs / 4;
  const auto total = [&](int row, int place) {
    float4 values[kMostClusterBlocks][kSpanWarps];  // all are on their way before the first is added
#pragma unroll
    for (int block = 0; block < kMostClusterBlocks; ++block) {
      if (block >= splits) continue;
#pragma unroll
      for (int t = 0; t < kSpanWarps; ++t)
        values[block][t] =
            *in_block(reinterpret_cast<const float4*>(sums + (t * kRows + row) * kSumStride + place), block);
    }
    float4 value{};
#pragma unroll
    for (int block = 0; block < kMostClusterBlocks; ++block) {
      if (block >= splits) continue;
#pragma unroll
      for (int t = 0; t < kSpanWarps; ++t) value = add4(value, values[block][t]);
    }
    return value;
  };
  for (int i = rank * kManyThreads + threadIdx.x; i < packs * kRows; i += splits * kManyThreads) {
    const int place = i % packs * 4, row = i / packs;
    const int output = block_tile * kPackedTile + place;
    if (output >= all || first_row + row >= p.rows) continue;
    const float4 first = total(row, place), second = p.gated ? total(row, place + block_outputs) : float4{};
    finish4<T>(p, output, all, first_row + row, first, second);
  }
  synchronize_cluster();  // the others may still read this block's sums
}

// Clusters of each number of blocks that run at the same time, or 0 where that is not known yet: of one kernel, of
// which a multiprocessor has room for equally many blocks in all launches.
using ClusterCounts = std::array<std::atomic<int>, kMostClusterBlocks + 1>;

// Divides the work of each block of a launch (in x and z) among a cluster of blocks (in y), at most `most` and as many
// as let all clusters run at the same time: the last would take as long as all others together.
template <typename... Parameters>
void split_spans(LaunchShape& shape, int most, ClusterCounts& counts, void (*kernel)(Parameters...)) {
  const int needed = shape.grid.x * shape.grid.z;
  for (int splits = std::min(most, kMostClusterBlocks); splits > 1; --splits) {
    shape.cluster.y = shape.grid.y = splits;
    if (counts[splits] == 0) counts[splits] = count_clusters(kPackedName, kernel, shape);
    if (counts[splits] >= needed) return;
  }
  shape.cluster.y = shape.grid.y = 1;
}

template <typename T, typename Format, int kColumns>
void launch_many_rows(const PackedProduct& p, cudaStream_t stream) {
  constexpr int kRows = kColumns * kRowsOfProduct;
  const int per_block = p.gated ? kTileWarps * 2 : kBlockTiles;
  const int blocks = (p.weight.tiles() + per_block - 1) / per_block, row_blocks = (p.rows + kRows - 1) / kRows;
  const int slots = device_attribute(cudaDevAttrMultiProcessorCount, kPackedName) * kManyBlocks;
  const size_t stage = size_t{kBlockTiles} * p.weight.shape.bytes() + kRows * kPackedSpan * 2;
  const size_t ring = stage * kManyDepth<Format, kColumns> * kSpanWarps;
  const size_t sums = sizeof(float) * kSpanWarps * kRows * kSumStride;
  LaunchShape shape{dim3(blocks, 1, row_blocks), kManyThreads, std::max(ring, sums)};
  static ClusterCounts counts;
  split_spans(shape, std::min(slots / (blocks * row_blocks), (p.weight.spans() + kSpanWarps - 1) / kSpanWarps), counts,
              multiply_many_rows<T, Format, kColumns>);
  launch(kPackedName, multiply_many_rows<T, Format, kColumns>, shape, stream, p);
}

}  // namespace constrain::cuda
