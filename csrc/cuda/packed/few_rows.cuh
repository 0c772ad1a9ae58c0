// The kernel for products of packed weights with up to eight rows, or eight at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/launch.cuh"
#include "cuda/packed/ring.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarp;
constexpr int kFewResident = 3;                                         // most blocks on a multiprocessor
constexpr int kFewStages = 2;                                           // of a warp's ring
constexpr int kFewItemSums = kFewWarps * kPackedTile * kRowsOfProduct;  // of a tile

// What a block does with the rows of x where there is a norm: it multiplies them by the norm's weight whenever it
// fetches them, or once, and keeps them.
enum class Rows { plain, normed, kept };

// A span of the rows that a warp keeps: the quarters of all rows one after another, then the norm's weight, then the
// sums of groups of each of eight rows.
struct KeptSpan {
  int quarter_bytes, factors_at, sums_at, bytes;

  __host__ __device__ KeptSpan(int rows, int groups)
      : quarter_bytes(rows * kQuarterBytes),
        factors_at(kQuarters * quarter_bytes),
        sums_at(factors_at + kQuarters * kQuarterBytes),
        bytes(sums_at + groups * kRowsOfProduct * static_cast<int>(sizeof(float))) {}
};

// How a product is divided among blocks, and their shared memory. A stage has records of each tile for one span or two,
// rows of x for these, and where there is a norm, its weight as another row; rows are padded so that lanes use
// different banks. Rows that are kept are after the rings instead. Then come the sums of an item, twice where there is
// room.
struct FewPlan {
  int blocks, rows;                                  // of the grid in x, and of x for a block
  int spans, tile_bytes, row_bytes, rows_at, bytes;  // of a stage
  bool kept = false;                                 // the rows
  int kept_at, kept_bytes;                           // of a warp's rows
  int sums_at, sums_step, shared_bytes;
  int64_t tile_step, item_step;  // bytes between the records of an item's tiles, and of a block's items

  // With `sums_rows`, the kernel needs the sums of the rows of x.
  FewPlan(const PackedProduct& p, int tiles, bool sums_rows)
      : processors_(device_attribute(cudaDevAttrMultiProcessorCount, kPackedName)),
        memory_(device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, kPackedName)) {
    for (rows = std::min(p.rows, kRowsOfProduct); !arrange(p, tiles, sums_rows); rows /= 2)
      require(rows > 1, kPackedName, "too little shared memory");
  }

 private:
  // Three blocks to a multiprocessor where that gives each item its own; otherwise two or one, which take turns. Rows
  // are kept where blocks take several items and it saves more than the product of a row and the norm's weight.
  bool arrange(const PackedProduct& p, int tiles, bool sums_rows) {
    const int items = p.weight.tiles() / tiles;
    if (items > 2 * processors_ && items <= kFewResident * processors_) {
      for (spans = 2; spans > 0; --spans)
        if (fits(p, tiles, kFewResident, items)) return true;
    }
    kept = p.norm_weight && (rows > 1 || sums_rows) && items > kFewResident * processors_;
    if (take_turns(p, tiles, items)) return true;
    return std::exchange(kept, false) && take_turns(p, tiles, items);
  }

  bool take_turns(const PackedProduct& p, int tiles, int items) {
    for (spans = 2; spans > 0; --spans) {
      for (int resident = 2; resident > 0; --resident)
        if (fits(p, tiles, resident, items)) return true;
    }
    return false;
  }

  bool fits(const PackedProduct& p, int tiles, int resident, int items) {
    constexpr int kOther = 2 << 10;  // what the driver and static variables take of the memory of a block
    const int stage_rows = kept ? 0 : rows + (p.norm_weight != nullptr);
    const int64_t item_bytes = int64_t{p.weight.spans()} * p.weight.shape.bytes();
    blocks = std::min(items, resident * processors_);
    tile_step = items * item_bytes;
    item_step = blocks * item_bytes;
    tile_bytes = spans * p.weight.shape.bytes();
    row_bytes = spans * kPackedSpan * 2 + 64;
    rows_at = tiles * tile_bytes;
    bytes = rows_at + stage_rows * row_bytes;
    kept_at = kFewWarps * kFewStages * bytes;
    const int turn = kFewWarps * spans, turns = (p.weight.spans() + turn - 1) / turn;
    kept_bytes = kept ? turns * spans * KeptSpan(rows, p.weight.shape.groups()).bytes : 0;
    sums_at = kept_at + kFewWarps * kept_bytes;
    const int sums = tiles * kFewItemSums * static_cast<int>(sizeof(float)), room = memory_ / resident - kOther;
    sums_step = sums_at + 2 * sums <= room ? sums : 0;
    // So much that no multiprocessor takes more blocks than others.
    shared_bytes = std::max(sums_at + sums + sums_step, memory_ / (resident + 1) - kOther / 2);
    if (kept ? spans * resident == 1 : spans > 1 && stage_rows > 4) return false;  // too little on its way, too much
    return shared_bytes <= room && (sums_step > 0 || resident == 1 || kept);
  }

  int processors_, memory_;
};

// The lane's 16 bytes of a quarter of a row times those of the norm's weight.
template <typename T>
__device__ __forceinline__ uint4 multiply_chunk(const uint4& x, const uint4& f) {
  return make_uint4(multiply2<T>(x.x, f.x), multiply2<T>(x.y, f.y), multiply2<T>(x.z, f.z), multiply2<T>(x.w, f.w));
}

// Adds the squares of rows, as the diagonal of x @ x.T; `x` is 16 bytes of row g.
template <typename T>
__device__ __forceinline__ void add_squares(const uint4& x, float (&squares)[4]) {
  multiply_add<T>(squares, {x.x, 0, x.y, 0}, {x.x, x.y});
  multiply_add<T>(squares, {x.z, 0, x.w, 0}, {x.z, x.w});
}

// Multiplies the rows of a span by the norm's weight, which follows them, and writes the sums of groups. Adds the
// squares of the rows before that.
template <typename T, typename Format>
__device__ __forceinline__ void prepare_span(uint8_t* rows, const KeptSpan& kept, int row, int lane,
                                             float (&squares)[4]) {
  constexpr int kGroupQuarters = Format::kGroup / 32;
  const int group = lane / 4, member = lane % 4;
  uint8_t* own = rows + row * kQuarterBytes + member * kChunk;
  uint4 x[kQuarters];
#pragma unroll
  for (int q = 0; q < kQuarters; ++q) {
    x[q] = *reinterpret_cast<const uint4*>(own + q * kept.quarter_bytes);
    add_squares<T>(x[q], squares);
    const uint8_t* factor = rows + kept.factors_at + q * kQuarterBytes + member * kChunk;
    x[q] = multiply_chunk<T>(x[q], *reinterpret_cast<const uint4*>(factor));
  }
  __syncwarp();  // the last row stands in for others, too
#pragma unroll
  for (int q = 0; q < kQuarters; ++q)
    if (group == row) *reinterpret_cast<uint4*>(own + q * kept.quarter_bytes) = x[q];
#pragma unroll
  for (int first = 0; first < kQuarters; first += kGroupQuarters) {
    float sums[4] = {};
#pragma unroll
    for (int q = first; q < first + kGroupQuarters; ++q) {
      add_rows<T>(sums, {x[q].x, x[q].y});
      add_rows<T>(sums, {x[q].z, x[q].w});
    }
    if (group == 0) {
      auto* to = reinterpret_cast<float2*>(rows + kept.sums_at) + first / kGroupQuarters * (kRowsOfProduct / 2);
      to[member] = {sums[0], sums[1]};
    }
  }
  __syncwarp();
}

// Adds up the sums of the warps, [kTiles][kFewWarps][kPackedTile][kRowsOfProduct], and writes the outputs of an item.
template <typename T, int kTiles, bool kNorm>
__device__ __forceinline__ void finish_item(const PackedProduct& p, int item, int first_row, int rows,
                                            const float* sums, const float (&squares)[kFewWarps][kRowsOfProduct]) {
  const int row = threadIdx.x % kRowsOfProduct, place = threadIdx.x / kRowsOfProduct;
  const int output = item * kPackedTile + place;
  if (place >= kPackedTile || row >= rows || output >= p.weight.outputs / kTiles) return;
  float total[2] = {};
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int w = 0; w < kFewWarps; ++w)
      total[m] += sums[(m * kFewWarps + w) * kPackedTile * kRowsOfProduct + place * kRowsOfProduct + row];
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

// An item is kTiles tiles of outputs (those of the gate and of the other matrix where gated) for up to eight rows.
// Blocks take items in turn, their warps spans of the inputs, and the warps' sums are added at the end of an item.
// Every warp has a ring of records and rows, so that no warp waits for another's, and which is filled across the ends
// of items; records begin to arrive before the preceding kernel has ended. Where there are less than eight rows, the
// last one stands in for the others, whose sums are not used.
template <typename T, typename Format, int kTiles, Rows kRows>
__global__ void __launch_bounds__(kFewThreads, kFewResident) multiply_few_rows(PackedProduct p, FewPlan plan) {
  constexpr bool kNorm = kRows != Rows::plain, kKept = kRows == Rows::kept;
  extern __shared__ uint4 memory[];  // rings, then sums
  __shared__ float squares[kFewWarps][kRowsOfProduct];
  __shared__ uint64_t barriers[kFewWarps][kFewStages];

  const RecordLayout<Format> layout(p.weight.shape);
  // The same in all lanes, as the compiler can see then.
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  const int group = lane / 4, member = lane % 4;
  const int spans = p.weight.spans(), items = p.weight.tiles() / kTiles;
  const int first_span = warp * plan.spans, span_step = kFewWarps * plan.spans;
  const int first_row = blockIdx.y * plan.rows, rows = min(p.rows - first_row, plan.rows);
  Ring<kFewStages> ring(reinterpret_cast<uint8_t*>(memory) + warp * kFewStages * plan.bytes, plan.bytes,
                        barriers[warp]);

  // The next records to ask for: spans of the items of the block, one item after another.
  int item_ahead = first_span < spans ? blockIdx.x : items, span_ahead = first_span;
  const uint8_t* first_record =
      static_cast<const uint8_t*>(p.weight.records) + (int64_t{blockIdx.x} * spans + first_span) * layout.bytes;
  const uint8_t* from = first_record;
  const auto ask_records = [&](int slot) {
    const int bytes = span_ahead + plan.spans <= spans ? plan.tile_bytes : layout.bytes;
    ring.template ask<kTiles>(slot, from, plan.tile_step, plan.tile_bytes, bytes);
  };
  const auto advance = [&] {
    span_ahead += span_step;
    from += kFewWarps * plan.tile_bytes;
    if (span_ahead < spans) return;
    from = first_record += plan.item_step;
    span_ahead = first_span;
    item_ahead += gridDim.x;
  };
  const int row_lanes = plan.spans * (kPackedSpan / 8), row_step = kWarp / row_lanes;  // 32 and 1, or 16 and 2
  const int lane_row = lane / row_lanes, lane_input = lane % row_lanes * 8;
  const T* lane_x = static_cast<const T*>(p.x) + (first_row + lane_row) * p.x_stride + lane_input;
  const auto ask_rows = [&](int slot, int span) {
    const int input = span * kPackedSpan;
    const bool valid = input + lane_input < p.weight.inputs;
    uint8_t* to = ring.at(slot) + plan.rows_at + lane_input * 2;
    const T* from = lane_x + input;
    if constexpr (kRows == Rows::normed) {
      if (lane_row == 0)
        copy_async_cached(to + rows * plan.row_bytes, static_cast<const T*>(p.norm_weight) + input + lane_input, valid);
    }
    to += lane_row * plan.row_bytes;
#pragma unroll 1
    for (int row = lane_row; row < rows; row += row_step) {
      copy_async_cached(to, from, valid);
      to += row_step * plan.row_bytes;
      from += row_step * p.x_stride;
    }
  };
  int asked[kFewStages];  // spans of the first stages
#pragma unroll
  for (int d = 0; d < kFewStages; ++d) {
    asked[d] = item_ahead < items ? span_ahead : spans;
    if (asked[d] == spans) continue;
    ask_records(d);
    advance();
  }
  const KeptSpan kept(rows, layout.kGroups);
  uint8_t* kept_rows = reinterpret_cast<uint8_t*>(memory) + plan.kept_at + warp * plan.kept_bytes;
  const auto keep = [&](uint8_t* to, int quarter_bytes, const T* from, int64_t stride, int count) {
    const int chunk = lane % kSpanChunks;
    to += chunk / 4 * quarter_bytes + chunk % 4 * kChunk;
#pragma unroll 1
    for (int first = first_span; first < spans; first += span_step) {
#pragma unroll 1
      for (int span = first; span < min(first + plan.spans, spans); ++span, to += kept.bytes) {
        const int input = span * kPackedSpan + chunk * 8;
#pragma unroll 1
        for (int row = lane / kSpanChunks; row < count; row += kWarp / kSpanChunks)
          copy_async_cached(to + row * kQuarterBytes, from + row * stride + input, input < p.weight.inputs);
      }
    }
  };
  if constexpr (kKept) keep(kept_rows + kept.factors_at, kQuarterBytes, static_cast<const T*>(p.norm_weight), 0, 1);
  wait_for_predecessor();
  release_successor();
  if constexpr (kKept)
    keep(kept_rows, kept.quarter_bytes, static_cast<const T*>(p.x) + first_row * p.x_stride, p.x_stride, rows);
#pragma unroll
  for (int d = 0; d < kFewStages; ++d) {
    if (!kKept && asked[d] < spans) ask_rows(d, asked[d]);
    end_stage();
  }

  const int row = min(group, rows - 1), own_row = plan.rows_at + row * plan.row_bytes + member * kChunk;
  const int factors = plan.rows_at + rows * plan.row_bytes + member * kChunk;
  float* sums = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(memory) + plan.sums_at);
  int sums_step = plan.sums_step / static_cast<int>(sizeof(float));
  float square[4] = {};
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    float sum[kTiles][1][4] = {};
    uint8_t* kept_span = kept_rows;
#pragma unroll 1
    for (int first = first_span; first < spans; first += span_step) {
      ring.wait();
      const uint8_t *stage = ring.current(), *columns = stage + own_row, *factor = stage + factors;
      const uint8_t* end = stage + (first + plan.spans <= spans ? plan.tile_bytes : layout.bytes);
#pragma unroll 1
      for (; stage < end; stage += layout.bytes) {
        if constexpr (kKept) {
          if (item == blockIdx.x) prepare_span<T, Format>(kept_span, kept, row, lane, square);
          const uint8_t* own = kept_span + row * kQuarterBytes + member * kChunk;
          const auto* row_sums = reinterpret_cast<const float2*>(kept_span + kept.sums_at) + member;
          multiply_span<T, Format, Offsets::known, kTiles, 1>(
              sum, stage, plan.tile_bytes, layout, lane,
              [&](int quarter, int) { return *reinterpret_cast<const uint4*>(own + quarter * kept.quarter_bytes); },
              row_sums);
          kept_span += kept.bytes;
        } else {
          if constexpr (kNorm) {
            if (item == blockIdx.x) {
#pragma unroll
              for (int q = 0; q < kQuarters; ++q)
                add_squares<T>(*reinterpret_cast<const uint4*>(columns + q * kQuarterBytes), square);
            }
          }
          multiply_span<T, Format, Offsets::summed, kTiles, 1>(
              sum, stage, plan.tile_bytes, layout, lane, [&](int quarter, int) {
                const uint4 chunk = *reinterpret_cast<const uint4*>(columns + quarter * kQuarterBytes);
                if constexpr (!kNorm) return chunk;
                return multiply_chunk<T>(chunk, *reinterpret_cast<const uint4*>(factor + quarter * kQuarterBytes));
              });
          factor += kPackedSpan * 2;
          columns += kPackedSpan * 2;
        }
      }
      __syncwarp();
      if (item_ahead < items) {
        ask_records(ring.slot());
        if constexpr (!kKept) ask_rows(ring.slot(), span_ahead);
        advance();
      }
      end_stage();
      ring.next();
    }
    // The sums of the item before may still be read.
    if (plan.sums_step == 0) __syncthreads();
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      float* own = sums + (m * kFewWarps + warp) * kPackedTile * kRowsOfProduct + group * kRowsOfProduct + member * 2;
      *reinterpret_cast<float2*>(own) = {sum[m][0][0], sum[m][0][1]};
      *reinterpret_cast<float2*>(own + 8 * kRowsOfProduct) = {sum[m][0][2], sum[m][0][3]};
    }
    if constexpr (kNorm) {
      // Row g of the diagonal is in column 2 t or 2 t + 1.
      if (item == blockIdx.x && group / 2 == member) squares[warp][group] = group % 2 == 0 ? square[0] : square[1];
    }
    __syncthreads();
    finish_item<T, kTiles, kNorm>(p, item, first_row, rows, sums, squares);
    sums += sums_step;
    sums_step = -sums_step;
  }
}

template <typename T, typename Format, int kTiles, bool kNorm>
void launch_few_rows(const PackedProduct& p, cudaStream_t stream) {
  const FewPlan plan(p, kTiles, Format::template kCarries<T, Format::kZeros>);
  const LaunchShape shape{dim3(plan.blocks, (p.rows + plan.rows - 1) / plan.rows), kFewThreads,
                          size_t(plan.shared_bytes)};
  const auto start = [&](auto* kernel) { launch(kPackedName, kernel, shape, stream, p, plan); };
  if constexpr (!kNorm)
    return start(multiply_few_rows<T, Format, kTiles, Rows::plain>);
  else if (plan.kept)
    return start(multiply_few_rows<T, Format, kTiles, Rows::kept>);
  else
    return start(multiply_few_rows<T, Format, kTiles, Rows::normed>);
}

}  // namespace constrain::cuda
