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

// Blocks that share a multiprocessor, and stages of a warp's ring for which they have shared memory.
template <int kTiles>
constexpr int kFewBlocks = kTiles == 1 ? 3 : 2;
template <typename Format, int kTiles>
constexpr int kFewDepth = kFewBlocks<kTiles> * (sizeof(typename Format::Words) == 16 ? 1 : 2);

// Bytes of the norm's weight in a stage.
template <bool kNorm>
constexpr int kFactorBytes = kNorm ? kPackedSpan * 2 : 0;

// The part of the rows of x that a lane holds for a span, 16 bytes for each quarter.
struct SpanColumns {
  uint4 x[kQuarters];
};

// `from` is that of the first quarter, of which `left` inputs and those after them exist.
template <typename T>
__device__ __forceinline__ void load_columns(SpanColumns& columns, const T* from, int left) {
  if (left >= kPackedSpan) {
#pragma unroll
    for (int h = 0; h < kQuarters; ++h) columns.x[h] = *reinterpret_cast<const uint4*>(from + h * 32);
  } else {
    const int first = threadIdx.x % 4 * 8;
#pragma unroll
    for (int h = 0; h < kQuarters; ++h) {
      columns.x[h] = make_uint4(0, 0, 0, 0);
      if (first + h * 32 < left) columns.x[h] = *reinterpret_cast<const uint4*>(from + h * 32);
    }
  }
}

// Multiplies by the norm's weight, and adds the squares of the rows of x, as the diagonal of x @ x.T, to `squares`.
template <typename T>
__device__ __forceinline__ void apply_norm(SpanColumns& columns, const uint4* factor, float (&squares)[4]) {
#pragma unroll
  for (int h = 0; h < kQuarters; ++h) {
    uint4& x = columns.x[h];
    const uint4 f = factor[h * 4 + threadIdx.x % 4];
    multiply_add<T>(squares, {x.x, 0, x.y, 0}, {x.x, x.y});
    multiply_add<T>(squares, {x.z, 0, x.w, 0}, {x.z, x.w});
    x = make_uint4(multiply2<T>(x.x, f.x), multiply2<T>(x.y, f.y), multiply2<T>(x.z, f.z), multiply2<T>(x.w, f.w));
  }
}

// A block computes kTiles tiles of outputs (those of the gate and of the other matrix where gated) for eight rows. Its
// warps take turns at spans of the inputs, and their sums are added at the end. Every warp has a ring of records in
// shared memory, so that no warp waits for another; the ring begins to fill before the preceding kernel has ended.
// Where there are less than eight rows, the last one stands in for the others, whose sums are not used.
template <typename T, typename Format, int kTiles, bool kNorm>
__global__ void __launch_bounds__(kFewThreads, kFewBlocks<kTiles>) multiply_few_rows(PackedProduct p) {
  constexpr int kDepth = kFewDepth<Format, kTiles>;
  extern __shared__ uint4 rings[];  // [kFewWarps][kDepth], in each the records of the tiles and the norm's weight
  __shared__ float sums[kTiles][kFewWarps][kPackedTile][kRowsOfProduct];
  __shared__ float squares[kFewWarps][kRowsOfProduct];

  const RecordLayout<Format> layout(p.weight.shape);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int spans = p.weight.spans(), chunks = layout.bytes / kChunk;
  const int first_row = blockIdx.y * kRowsOfProduct, rows = min(p.rows - first_row, kRowsOfProduct);
  const int stage_bytes = kTiles * layout.bytes + kFactorBytes<kNorm>;
  uint8_t* ring = reinterpret_cast<uint8_t*>(rings) + warp * kDepth * stage_bytes;

  // What is fetched next: a record of the first tile, and the same of the others a step further.
  const int64_t tile_step = int64_t{p.weight.tiles() / kTiles} * spans * layout.bytes;
  const uint8_t* record = static_cast<const uint8_t*>(p.weight.records) +
                          (int64_t{blockIdx.x} * spans + warp) * layout.bytes + lane * kChunk;
  int fetched = warp;
  const auto fetch = [&](uint8_t* stage) {
    if (fetched < spans) {
      constexpr int kFull = RecordLayout<Format>::kCodeBytes / (kWarp * kChunk);  // copies of whole warps
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const auto* from = reinterpret_cast<const uint4*>(record + m * tile_step);
        auto* to = reinterpret_cast<uint4*>(stage + m * layout.bytes) + lane;
#pragma unroll
        for (int i = 0; i < kFull; ++i) copy_async(to + i * kWarp, from + i * kWarp, true);
        if (kFull * kWarp + lane < chunks) copy_async(to + kFull * kWarp, from + kFull * kWarp, true);
      }
      if constexpr (kNorm) {
        const int input = fetched * kPackedSpan + lane * 8;
        const bool valid = input < p.weight.inputs;
        const T* factor = static_cast<const T*>(p.norm_weight) + (valid ? input : 0);
        if (lane < kFactorBytes<kNorm> / kChunk)
          copy_async(reinterpret_cast<uint4*>(stage + kTiles * layout.bytes) + lane, factor, valid);
      }
    }
    end_stage();
    fetched += kFewWarps;
    record += kFewWarps * layout.bytes;
  };

#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(ring + d * stage_bytes);
  wait_for_predecessor();
  release_successor();

  constexpr int kStep = kFewWarps * kPackedSpan;
  const T* x =
      static_cast<const T*>(p.x) + (first_row + min(group, rows - 1)) * p.x_stride + warp * kPackedSpan + member * 8;
  int left = p.weight.inputs - warp * kPackedSpan;
  float sum[kTiles][1][4] = {};
  float square[4] = {};
  int slot = 0;
  const auto multiply = [&](SpanColumns& columns, SpanColumns& next) {
    x += kStep;
    left -= kStep;
    load_columns(next, x, left);
    wait_for_stage<kDepth - 1>();
    uint8_t* stage = ring + slot * stage_bytes;
    if constexpr (kNorm) apply_norm<T>(columns, reinterpret_cast<const uint4*>(stage + kTiles * layout.bytes), square);
    multiply_span<T, Format, kTiles, 1>(sum, stage, layout, lane, [&](int quarter, int) { return columns.x[quarter]; });
    __syncwarp();
    fetch(stage);
    slot = slot == kDepth - 1 ? 0 : slot + 1;
  };
  // Two sets of registers take turns, so that none is copied.
  SpanColumns even, odd;
  load_columns(even, x, left);
#pragma unroll 1
  while (left > 0) {
    multiply(even, odd);
    if (left <= 0) break;
    multiply(odd, even);
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
  const size_t stage = size_t{kTiles} * p.weight.shape.bytes() + kFactorBytes<kNorm>;
  const size_t ring = kFewWarps * kFewDepth<Format, kTiles> * stage;
  launch(kPackedName, multiply_few_rows<T, Format, kTiles, kNorm>, {dim3(blocks, row_blocks), kFewThreads, ring},
         stream, p);
}

}  // namespace constrain::cuda
