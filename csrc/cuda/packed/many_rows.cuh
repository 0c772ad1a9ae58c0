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

constexpr int kManyBlocks = 2;  // that share a multiprocessor, in which neither waits for the other

// Stages of a ring; as many as let the blocks of a multiprocessor have their shared memory.
template <typename Format, int kColumns>
constexpr int kManyDepth = Format::kSteps == 2 ? 2
                           : kColumns <= 2     ? 4
                                               : 3;

// Waits for the threads of a team.
__device__ __forceinline__ void synchronize_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeam) : "memory");
}

// Index of a chunk of a row of x, swizzled so that the lanes of a load use different banks.
__device__ __forceinline__ int place_chunk(int row, int chunk) { return row * kSpanChunks + (chunk ^ (row % 2 * 4)); }

__device__ __forceinline__ float4 add4(const float4& x, const float4& y) {
  return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

// The sums of a block, [kSpanWarps][kColumns][kManyTiles][kTeam]: each thread's, as the tensor cores leave them.
template <int kColumns>
struct BlockSums {
  static constexpr int kFragments = kColumns * kManyTiles;
  static constexpr int kBytes = kSpanWarps * kFragments * kTeam * static_cast<int>(sizeof(float4));

  float4* memory;

  __device__ __forceinline__ float4* at(int team, int fragment, int thread) const {
    return memory + (team * kFragments + fragment) * kTeam + thread;
  }

  // Those of all teams of the cluster, which are all on their way before the first is added.
  __device__ __forceinline__ float4 total(int blocks, int fragment, int thread) const {
    if (blocks == 1) return add4(*at(0, fragment, thread), *at(1, fragment, thread));
    float4 values[kMostClusterBlocks][kSpanWarps];
#pragma unroll
    for (int block = 0; block < kMostClusterBlocks; ++block) {
      if (block >= blocks) continue;
      const float4* from = in_block(at(0, fragment, thread), block);
#pragma unroll
      for (int team = 0; team < kSpanWarps; ++team) values[block][team] = from[team * kFragments * kTeam];
    }
    float4 value{};
#pragma unroll
    for (int block = 0; block < kMostClusterBlocks; ++block) {
      if (block >= blocks) continue;
#pragma unroll
      for (int team = 0; team < kSpanWarps; ++team) value = add4(value, values[block][team]);
    }
    return value;
  }
};

// A block computes eight tiles of outputs for 8 * kColumns rows, over the spans that it does not leave to the other
// blocks of its cluster. Where gated, each warp has the same tile of both matrices. Two teams of warps take turns at
// the spans; a team shares the rows of x. The sums of all are added at the end, each block adding those of some of the
// outputs. The last tile and row stand in for those beyond them, whose outputs are not written.
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
  const int record_bytes = kTileWarps * kManyTiles * layout.bytes, stage_bytes = record_bytes + kRows * kPackedSpan * 2;
  const int own_records = tile_warp * kManyTiles * layout.bytes;
  uint8_t* ring = reinterpret_cast<uint8_t*>(memory) + team * kDepth * stage_bytes;

  // The next records and rows to fetch.
  const int own_tiles = p.gated ? tiles / 2 : tiles, tile = min(block_tile + tile_warp, own_tiles - 1);
  const int tile_step = p.gated ? tiles / 2 : min(tile + kTileWarps, tiles - 1) - tile;
  const int record_step = tile_step * spans * chunks;
  const uint8_t* record = static_cast<const uint8_t*>(p.weight.records) +
                          (int64_t{tile} * spans + first_span) * layout.bytes + lane * kChunk;
  const auto fetch_records = [&](int slot) {
    uint8_t* to = ring + slot * stage_bytes + own_records + lane * kChunk;
#pragma unroll
    for (int m = 0; m < kManyTiles; ++m) {
      constexpr int kFull = RecordLayout<Format>::kCodeBytes / (kWarp * kChunk);
#pragma unroll
      for (int i = 0; i <= kFull; ++i) {
        const int place = i * kWarp * kChunk;
        copy_async_where(i < kFull || i * kWarp + lane < chunks, to + m * layout.bytes + place,
                         record + int64_t{m * record_step} * kChunk + place);
      }
    }
    record += span_step * layout.bytes;
  };
  const int chunk = in_team % kSpanChunks, chunk_row = in_team / kSpanChunks;
  const auto row_of = [&](int n) { return min(first_row + chunk_row + n * kRowsOfProduct, p.rows - 1); };
  int row_steps[kColumns];  // in chunks
#pragma unroll
  for (int n = 0; n < kColumns; ++n) row_steps[n] = (row_of(n) - row_of(0)) * static_cast<int>(p.x_stride / 8);
  const T* row = static_cast<const T*>(p.x) + row_of(0) * p.x_stride + first_span * kPackedSpan + chunk * 8;
  const auto fetch_rows = [&](int slot, int span) {
    auto* to = reinterpret_cast<uint4*>(ring + slot * stage_bytes + record_bytes) + place_chunk(chunk_row, chunk);
    const bool valid = span * kPackedSpan + chunk * 8 < p.weight.inputs;
#pragma unroll
    for (int n = 0; n < kColumns; ++n)
      copy_async(to + n * kRowsOfProduct * kSpanChunks, reinterpret_cast<const uint4*>(row) + row_steps[n], valid);
    row += span_step * kPackedSpan;
  };

#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d) {
    if (first_span + d * span_step < spans) fetch_records(d);
  }
  wait_for_predecessor();
  release_successor();
#pragma unroll
  for (int d = 0; d < kDepth - 1; ++d) {
    if (first_span + d * span_step < spans) fetch_rows(d, first_span + d * span_step);
    end_stage();
  }

  float sum[kManyTiles][kColumns][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int span = first_span; span < spans; span += span_step) {
    wait_for_stage<kDepth - 2>();
    synchronize_team(team);  // all have the stage, and have done with the one before, which is overwritten now
    const int span_ahead = span + (kDepth - 1) * span_step;
    if (span_ahead < spans) {
      const int previous = slot == 0 ? kDepth - 1 : slot - 1;
      fetch_records(previous);
      fetch_rows(previous, span_ahead);
    }
    end_stage();
    const uint8_t* stage = ring + slot * stage_bytes;
    const auto* columns = reinterpret_cast<const uint4*>(stage + record_bytes);
    multiply_span<T, Format, Offsets::subtracted, kManyTiles, kColumns>(
        sum, stage + own_records, layout.bytes, layout, lane,
        [&](int quarter, int n) { return columns[place_chunk(n * kRowsOfProduct + group, quarter * 4 + member)]; });
    slot = slot == kDepth - 1 ? 0 : slot + 1;
  }

  wait_for_stage<0>();
  __syncthreads();
  const BlockSums<kColumns> sums{reinterpret_cast<float4*>(memory)};
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int m = 0; m < kManyTiles; ++m)
      *sums.at(team, n * kManyTiles + m, in_team) = {sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]};
  }
  if (splits == 1)
    __syncthreads();
  else
    synchronize_cluster();
  // Where gated, the fragments of both matrices are finished together.
  const int step = p.gated ? kManyTiles : 1, all = p.gated ? p.weight.outputs / 2 : p.weight.outputs;
#pragma unroll 1
  for (int i = rank * kManyThreads + threadIdx.x; i < sums.kFragments / step * kTeam; i += splits * kManyThreads) {
    const int fragment = i / kTeam * step, place = block_tile + i % kTeam / kWarp + fragment % kManyTiles * kTileWarps;
    const int output = place * kPackedTile + i % kWarp / 4;
    const int own_row = first_row + fragment / kManyTiles * kRowsOfProduct + i % 4 * 2;
    if (output >= all || own_row >= p.rows) continue;
    const float4 rest = load_residual<T>(p, output, all, own_row);
    const float4 first = sums.total(splits, fragment, i % kTeam);
    const float4 second = p.gated ? sums.total(splits, fragment + 1, i % kTeam) : float4{};
    finish_fragment<T>(p, output, all, own_row, first, second, rest);
  }
  if (splits > 1) leave_cluster();  // the others may still read this block's sums
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
  LaunchShape shape{dim3(blocks, 1, row_blocks), kManyThreads, std::max(ring, size_t{BlockSums<kColumns>::kBytes})};
  static ClusterCounts counts;
  split_spans(shape, std::min(slots / (blocks * row_blocks), (p.weight.spans() + kSpanWarps - 1) / kSpanWarps), counts,
              multiply_many_rows<T, Format, kColumns>);
  launch(kPackedName, multiply_many_rows<T, Format, kColumns>, shape, stream, p);
}

}  // namespace constrain::cuda
