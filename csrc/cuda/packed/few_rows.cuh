// The kernel for products of packed weights with up to eight rows, or eight at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/packed/ring.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr const char* kPackedName = "packed product";
constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarp;
constexpr int kFewResident = 3;                                         // most blocks on a multiprocessor
constexpr int kFewStages = 2;                                           // of a warp's ring
constexpr int kFewItemSums = kFewWarps * kPackedTile * kRowsOfProduct;  // of a tile

// How a product is divided among blocks, and their shared memory. A stage has records of each tile for one span or two,
// rows of x for these, and where there is a norm, its weight as another row; rows are padded so that lanes use
// different banks. After the rings are the sums of an item, twice where there is room.
struct FewPlan {
  int blocks, rows;                                  // of the grid in x, and of x for a block
  int spans, tile_bytes, row_bytes, rows_at, bytes;  // of a stage
  int sums_at, sums_step, shared_bytes;

  FewPlan(const PackedProduct& p, int tiles)
      : processors_(device_attribute(cudaDevAttrMultiProcessorCount, kPackedName)),
        memory_(device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, kPackedName)) {
    for (rows = std::min(p.rows, kRowsOfProduct); !arrange(p, tiles); rows /= 2)
      require(rows > 1, kPackedName, "too little shared memory");
  }

 private:
  // Three blocks to a multiprocessor where that gives each item its own; otherwise two or one, which take turns.
  bool arrange(const PackedProduct& p, int tiles) {
    const int items = p.weight.tiles() / tiles, most = rows + (p.norm_weight != nullptr) > 4 ? 1 : 2;
    if (items > 2 * processors_ && items <= kFewResident * processors_) {
      for (spans = most; spans > 0; --spans)
        if (fits(p, tiles, kFewResident, items)) return true;
    }
    for (spans = most; spans > 0; --spans) {
      for (int resident = 2; resident > 0; --resident)
        if (fits(p, tiles, resident, items)) return true;
    }
    return false;
  }

  bool fits(const PackedProduct& p, int tiles, int resident, int items) {
    constexpr int kOther = 2 << 10;  // what the driver and static variables take of the memory of a block
    blocks = std::min(items, resident * processors_);
    tile_bytes = spans * p.weight.shape.bytes();
    row_bytes = spans * kPackedSpan * 2 + 64;
    rows_at = tiles * tile_bytes;
    bytes = rows_at + (rows + (p.norm_weight != nullptr)) * row_bytes;
    sums_at = kFewWarps * kFewStages * bytes;
    const int sums = tiles * kFewItemSums * static_cast<int>(sizeof(float)), room = memory_ / resident - kOther;
    sums_step = sums_at + 2 * sums <= room ? sums : 0;
    // So much that no multiprocessor takes more blocks than others.
    shared_bytes = std::max(sums_at + sums + sums_step, memory_ / (resident + 1) - kOther / 2);
    return shared_bytes <= room && (sums_step > 0 || resident == 1);
  }

  int processors_, memory_;
};

// The lane's 16 bytes of a quarter of a row times those of the norm's weight.
template <typename T>
__device__ __forceinline__ uint4 multiply_chunk(const uint4& x, const uint4& f) {
  return make_uint4(multiply2<T>(x.x, f.x), multiply2<T>(x.y, f.y), multiply2<T>(x.z, f.z), multiply2<T>(x.w, f.w));
}

// Adds the squares of rows over a span, as the diagonal of x @ x.T; `x` is the lane's first 16 bytes of row g.
template <typename T>
__device__ __forceinline__ void add_squares(const uint8_t* x, float (&squares)[4]) {
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const uint4 each = *reinterpret_cast<const uint4*>(x + quarter * 64);
    multiply_add<T>(squares, {each.x, 0, each.y, 0}, {each.x, each.y});
    multiply_add<T>(squares, {each.z, 0, each.w, 0}, {each.z, each.w});
  }
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
template <typename T, typename Format, int kTiles, bool kNorm>
__global__ void __launch_bounds__(kFewThreads, kFewResident) multiply_few_rows(PackedProduct p, FewPlan plan) {
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
  const int64_t item_bytes = int64_t{spans} * layout.bytes;
  int item_ahead = first_span < spans ? blockIdx.x : items, span_ahead = first_span;
  const uint8_t* from =
      static_cast<const uint8_t*>(p.weight.records) + blockIdx.x * item_bytes + first_span * layout.bytes;
  const auto ask_records = [&](int slot) {
    const int bytes = span_ahead + plan.spans <= spans ? plan.tile_bytes : layout.bytes;
    ring.template ask<kTiles>(slot, from, items * item_bytes, plan.tile_bytes, bytes);
  };
  const auto advance = [&] {
    span_ahead += span_step;
    from += span_step * layout.bytes;
    if (span_ahead < spans) return;
    from += gridDim.x * item_bytes - (span_ahead - first_span) * layout.bytes;
    span_ahead = first_span;
    item_ahead += gridDim.x;
  };
  const T* x = static_cast<const T*>(p.x) + first_row * p.x_stride;
  const int row_lanes = plan.spans * (kPackedSpan / 8), row_step = kWarp / row_lanes;  // 32 and 1, or 16 and 2
  const int lane_row = lane / row_lanes, lane_input = lane % row_lanes * 8;
  const auto ask_rows = [&](int slot, int span) {
    const int input = span * kPackedSpan + lane_input;
    const bool valid = input < p.weight.inputs;
    const int place = valid ? input : 0;
    uint8_t* to = ring.at(slot) + plan.rows_at + lane_input * 2;
    if constexpr (kNorm) {
      if (lane_row == 0)
        copy_async_cached(to + rows * plan.row_bytes, static_cast<const T*>(p.norm_weight) + place, valid);
    }
#pragma unroll 1
    for (int row = lane_row; row < rows; row += row_step)
      copy_async_cached(to + row * plan.row_bytes, x + row * p.x_stride + place, valid);
  };
  int asked[kFewStages];  // spans of the first stages
#pragma unroll
  for (int d = 0; d < kFewStages; ++d) {
    asked[d] = item_ahead < items ? span_ahead : spans;
    if (asked[d] == spans) continue;
    ask_records(d);
    advance();
  }
  wait_for_predecessor();
  release_successor();
#pragma unroll
  for (int d = 0; d < kFewStages; ++d) {
    if (asked[d] < spans) ask_rows(d, asked[d]);
    end_stage();
  }

  const int own_row = plan.rows_at + min(group, rows - 1) * plan.row_bytes + member * kChunk;
  const int factors = plan.rows_at + rows * plan.row_bytes + member * kChunk;
  float* sums = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(memory) + plan.sums_at);
  int sums_step = plan.sums_step / static_cast<int>(sizeof(float));
  float square[4] = {};
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    float sum[kTiles][1][4] = {};
#pragma unroll 1
    for (int first = first_span; first < spans; first += span_step) {
      ring.wait();
      const uint8_t *stage = ring.current(), *columns = stage + own_row, *factor = stage + factors;
      const uint8_t* end = stage + (first + plan.spans <= spans ? plan.tile_bytes : layout.bytes);
#pragma unroll 1
      for (; stage < end; stage += layout.bytes, columns += kPackedSpan * 2, factor += kPackedSpan * 2) {
        if constexpr (kNorm) {
          if (item == blockIdx.x) add_squares<T>(columns, square);
        }
        multiply_span<T, Format, true, kTiles, 1>(sum, stage, plan.tile_bytes, layout, lane, [&](int quarter, int) {
          const uint4 chunk = *reinterpret_cast<const uint4*>(columns + quarter * 64);
          if constexpr (!kNorm) return chunk;
          return multiply_chunk<T>(chunk, *reinterpret_cast<const uint4*>(factor + quarter * 64));
        });
      }
      __syncwarp();
      if (item_ahead < items) {
        ask_records(ring.slot());
        ask_rows(ring.slot(), span_ahead);
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
  const FewPlan plan(p, kTiles);
  const dim3 grid(plan.blocks, (p.rows + plan.rows - 1) / plan.rows);
  launch(kPackedName, multiply_few_rows<T, Format, kTiles, kNorm>, {grid, kFewThreads, size_t(plan.shared_bytes)},
         stream, p, plan);
}

}  // namespace constrain::cuda
