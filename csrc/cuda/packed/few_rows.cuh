// The kernel for products of packed weights with up to eight rows, or eight at a time.
#pragma once

#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/launch.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr const char* kPackedName = "packed product";
constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarp;

// Stages of a warp's ring that fit into shared memory.
template <typename Format, int kTiles>
constexpr int kFewDepth = (Format::kCodes == Codes::int4 || Format::kCodes == Codes::float4 ? 8 : 4) / kTiles;

// The part of the rows of x that a lane holds for a span, 16 bytes for each quarter.
struct SpanColumns {
  uint4 x[kQuarters];
};

template <typename T>
__device__ __forceinline__ SpanColumns load_columns(const void* from, bool row_exists, int input, int inputs) {
  SpanColumns columns;
#pragma unroll
  for (int h = 0; h < kQuarters; ++h) {
    const bool valid = row_exists && input + h * 32 < inputs;
    columns.x[h] =
        valid ? *reinterpret_cast<const uint4*>(static_cast<const T*>(from) + input + h * 32) : make_uint4(0, 0, 0, 0);
  }
  return columns;
}

// Multiplies by the norm's weight, and adds the squares of the rows of x, as the diagonal of x @ x.T, to `squares`.
template <typename T>
__device__ __forceinline__ void apply_norm(SpanColumns& columns, const SpanColumns& factor, float (&squares)[4]) {
#pragma unroll
  for (int h = 0; h < kQuarters; ++h) {
    uint4& x = columns.x[h];
    const uint4& f = factor.x[h];
    multiply_add<T>(squares, {x.x, 0, x.y, 0}, {x.x, x.y});
    multiply_add<T>(squares, {x.z, 0, x.w, 0}, {x.z, x.w});
    x = make_uint4(multiply2<T>(x.x, f.x), multiply2<T>(x.y, f.y), multiply2<T>(x.z, f.z), multiply2<T>(x.w, f.w));
  }
}

// A block computes kTiles tiles of outputs (those of the gate and of the other matrix where gated) for eight rows. Its
// warps take turns at spans of the inputs, and their sums are added at the end. Every warp has a ring of records in
// shared memory, so that no warp waits for another; the ring begins to fill before the preceding kernel has ended.
template <typename T, typename Format, int kTiles, bool kNorm>
__global__ void __launch_bounds__(kFewThreads, kTiles == 1 ? 3 : 2) multiply_few_rows(PackedProduct p) {
  constexpr int kDepth = kFewDepth<Format, kTiles>;
  extern __shared__ uint4 rings[];  // [kFewWarps][kDepth][kTiles][bytes of a record]
  __shared__ float sums[kTiles][kFewWarps][kPackedTile][kRowsOfProduct];
  __shared__ float squares[kFewWarps][kRowsOfProduct];

  const RecordLayout<Format> layout(p.weight.shape);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int spans = p.weight.spans(), tile_step = p.weight.tiles() / kTiles, chunks = layout.bytes / kChunk;
  const int first_row = blockIdx.y * kRowsOfProduct, rows = min(p.rows - first_row, kRowsOfProduct);
  uint8_t* ring = reinterpret_cast<uint8_t*>(rings) + warp * kDepth * kTiles * layout.bytes;

  const auto fetch = [&](int slot, int turn) {
    const int span = turn * kFewWarps + warp;
    if (span < spans) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const int64_t record = int64_t{blockIdx.x + m * tile_step} * spans + span;
        const uint4* from =
            reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(p.weight.records) + record * layout.bytes);
        uint4* to = reinterpret_cast<uint4*>(ring + (slot * kTiles + m) * layout.bytes);
        constexpr int kFull = sizeof(typename Format::Words) * kQuarters / kChunk;  // of whole warps
#pragma unroll
        for (int i = 0; i < kFull; ++i) copy_async(to + i * kWarp + lane, from + i * kWarp + lane, true);
        if (kFull * kWarp + lane < chunks) copy_async(to + kFull * kWarp + lane, from + kFull * kWarp + lane, true);
      }
    }
    end_stage();
  };
  const T* x = static_cast<const T*>(p.x) + (first_row + min(group, rows - 1)) * p.x_stride;
  const auto load = [&](int turn, const void* from, bool row_exists) {
    return load_columns<T>(from, row_exists, (turn * kFewWarps + warp) * kPackedSpan + member * 8, p.weight.inputs);
  };

#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(d, d);
  wait_for_predecessor();
  release_successor();

  float sum[kTiles][1][4] = {};
  float square[4] = {};
  const int turns = (spans - warp + kFewWarps - 1) / kFewWarps;
  SpanColumns next = load(0, x, group < rows), next_factor{};
  if constexpr (kNorm) next_factor = load(0, p.norm_weight, true);
  int slot = 0;
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    SpanColumns columns = next;
    next = load(turn + 1, x, group < rows);
    if constexpr (kNorm) {
      apply_norm<T>(columns, next_factor, square);
      next_factor = load(turn + 1, p.norm_weight, true);
    }
    wait_for_stage<kDepth - 1>();
    multiply_span<T, Format, kTiles, 1>(sum, ring + slot * kTiles * layout.bytes, layout, lane,
                                        [&](int quarter, int) { return columns.x[quarter]; });
    __syncwarp();
    fetch(slot, turn + kDepth);
    slot = slot == kDepth - 1 ? 0 : slot + 1;
  }

#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[m][warp][group + i / 2 * 8][member * 2 + i % 2] = sum[m][0][i];
  }
  if constexpr (kNorm) {
    // Row g of the diagonal is in column 2 t or 2 t + 1.
    if (group / 2 == member) squares[warp][group] = group % 2 == 0 ? square[0] : square[1];
  }
  __syncthreads();
  const int outputs = kTiles == 2 ? p.weight.outputs / 2 : p.weight.outputs;
  for (int i = threadIdx.x; i < kPackedTile * kRowsOfProduct; i += kFewThreads) {
    const int output = blockIdx.x * kPackedTile + i % kPackedTile, row = i / kPackedTile;
    if (output >= outputs || row >= rows) continue;
    float total[2] = {};
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int w = 0; w < kFewWarps; ++w) total[m] += sums[m][w][i % kPackedTile][row];
    }
    if constexpr (kNorm) {
      float all = 0;
#pragma unroll
      for (int w = 0; w < kFewWarps; ++w) all += squares[w][row];
      const float scale = rsqrtf(all / p.weight.inputs + p.eps);
      total[0] *= scale;
      total[1] *= scale;
    }
    finish<T>(p, output, first_row + row, total[0], total[1]);
  }
}

template <typename T, typename Format, int kTiles, bool kNorm>
void launch_few_rows(const PackedProduct& p, cudaStream_t stream) {
  const unsigned blocks = p.weight.tiles() / kTiles, row_blocks = (p.rows + kRowsOfProduct - 1) / kRowsOfProduct;
  const size_t ring = size_t{kFewWarps} * kFewDepth<Format, kTiles> * kTiles * p.weight.shape.bytes();
  launch(kPackedName, multiply_few_rows<T, Format, kTiles, kNorm>, {dim3(blocks, row_blocks), kFewThreads, ring},
         stream, p);
}

}  // namespace constrain::cuda
