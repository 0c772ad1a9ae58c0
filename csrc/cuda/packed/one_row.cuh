// Product of a weight of four-bit integers with one row of activations, which is quantised to 15-bit integers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"
#include "cuda/packed/bulk.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kOneRowWarps = 16;  // that multiply
constexpr int kOneRowStages = 8;  // most of a warp's ring
constexpr int kOneRowPasses = 4;  // each loads two spans of the row at once
constexpr int kHalfWarp = kWarp / 2;
// A span of the row is stored as integers of at most `kLargestInteger`, times a step. Each has two digits to base 128,
// which are two columns of a product of bytes. The rounding error of an element is less than that of the largest
// element of its span in bfloat16 or float16.
constexpr int kDigitBase = 128;
constexpr int kLargestInteger = 127 * kDigitBase;
constexpr int kDigitBytes = kPackedSpan * 2;  // of a span

// A multiprocessor has room for one block with a norm and one without, so that a product can load its weights while the
// preceding one, mostly of the other kind, ends. It has no room for two blocks of a kind, which would leave other
// multiprocessors without any: blocks with a norm have four more warps, whose registers do not fit twice; those without
// take more than half of the shared memory.
template <bool kNorm>
constexpr int kOneRowThreads = (kOneRowWarps + 4 * kNorm) * kWarp;

// Launch bounds that give a thread 64 registers with a norm, and the 48 that are left beside these without. Two tiles
// need 56.
template <int kTiles, bool kNorm>
constexpr int kOneRowBound = kNorm ? 1024 : (kTiles == 1 ? 640 : 576);

// Factors of a span of the row: its step, and the sums of its integers over groups, which zero points are multiplied
// by.
template <typename Format>
struct SpanOfRow {
  float step;
  int sums[kPackedSpan / Format::kGroup];
};

// How a product is divided among blocks, and their shared memory: the warps' rings, the digits of the row, what else is
// known of its spans, and twice the sums of an item.
struct OneRowPlan {
  int blocks, stages, tile_bytes, stage_bytes;
  int digits_at, known_at, sums_at, shared_bytes;
  int64_t tile_step, item_step;  // bytes between the records of an item's tiles, and of a block's items

  // Whether there is room for a block.
  bool arrange(const PackedProduct& p, int tiles, int known_bytes) {
    constexpr int kLeastStages = 3, kMargin = 1 << 9;
    constexpr int kOther = 9 << 8;  // what the driver and static variables take of the memory of a block
    const int processors = device_attribute(cudaDevAttrMultiProcessorCount, kPackedName);
    const int memory = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, kPackedName);
    const int spans = p.weight.spans(), items = p.weight.tiles() / tiles;
    const int turns = (items + processors - 1) / processors;
    blocks = (items + turns - 1) / turns;
    tile_bytes = p.weight.shape.bytes();
    stage_bytes = tiles * tile_bytes;
    tile_step = int64_t{items} * spans * tile_bytes;
    item_step = int64_t{blocks} * spans * tile_bytes;
    const int sums = 2 * tiles * kOneRowWarps * kPackedTile * static_cast<int>(sizeof(float));
    const int fixed = spans * (kDigitBytes + known_bytes) + sums;
    const int wanted = turns * ((spans + kOneRowWarps - 1) / kOneRowWarps), least = std::min(kLeastStages, wanted);
    const int shared = memory / 2 + (p.norm_weight ? -kMargin : kMargin) - kOther;
    for (const int room : {shared, memory - kOther}) {
      stages = std::min({kOneRowStages, wanted, (room - fixed) / (kOneRowWarps * stage_bytes)});
      if (stages >= least) break;
    }
    digits_at = kOneRowWarps * stages * stage_bytes;
    known_at = digits_at + spans * kDigitBytes;
    sums_at = known_at + spans * known_bytes;
    shared_bytes = std::max(sums_at + sums, p.norm_weight ? 0 : shared);
    return stages >= least;
  }
};

// A warp's ring of records, filled with its spans of the block's items, one item after another.
class RecordRing {
 public:
  __device__ __forceinline__ RecordRing(const PackedProduct& p, const OneRowPlan& plan, int tiles, int first_span,
                                        uint8_t* stages, uint64_t* barriers)
      : plan_(plan),
        spans_(p.weight.spans()),
        items_(p.weight.tiles() / tiles),
        first_span_(first_span),
        stages_(stages),
        address_(shared_address(stages)),
        barriers_(shared_address(barriers)),
        item_(first_span < spans_ ? blockIdx.x : items_),
        span_(first_span),
        first_(static_cast<const uint8_t*>(p.weight.records) +
               (int64_t{blockIdx.x} * spans_ + first_span) * plan.tile_bytes),
        from_(first_) {
    if (threadIdx.x % kWarp == 0 && !at_end()) {
      for (int d = 0; d < plan.stages; ++d) initialize_barrier(barriers_ + d * kBarrierBytes, 1);
      publish_barriers();
    }
    __syncwarp();
  }

  // Whether all records have been asked for.
  __device__ __forceinline__ bool at_end() const { return item_ >= items_; }

  template <int kTiles>
  __device__ __forceinline__ void ask(int slot) {
    if (at_end()) return;
    if (threadIdx.x % kWarp == 0) {
      const uint32_t barrier = barriers_ + slot * kBarrierBytes, to = address_ + slot * plan_.stage_bytes;
      arrive_expecting(barrier, plan_.stage_bytes);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        copy_bulk(to + m * plan_.tile_bytes, from_ + m * plan_.tile_step, plan_.tile_bytes, barrier);
    }
    span_ += kOneRowWarps;
    from_ += kOneRowWarps * plan_.tile_bytes;
    if (span_ < spans_) return;
    from_ = first_ += plan_.item_step;
    span_ = first_span_;
    item_ += gridDim.x;
  }

  // Waits for the current stage, and returns it.
  __device__ __forceinline__ const uint8_t* wait() const {
    wait_for_phase(barriers_ + slot_ * kBarrierBytes, parity_);
    return stages_ + slot_ * plan_.stage_bytes;
  }

  // Lets the current stage be filled anew.
  template <int kTiles>
  __device__ __forceinline__ void next() {
    __syncwarp();
    ask<kTiles>(slot_);
    if (++slot_ < plan_.stages) return;
    slot_ = 0;
    parity_ ^= 1;
  }

 private:
  const OneRowPlan& plan_;
  int spans_, items_, first_span_;
  const uint8_t* stages_;
  uint32_t address_, barriers_;
  int item_, span_;  // the next to ask for
  const uint8_t *first_, *from_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// The digits of four elements of a span as integers, in the order in which the codes are: the high ones, the low ones.
__device__ __forceinline__ uint2 split_digits(const float* x, float inverse) {
  // The last bits of this number are an integer's; half of the base makes the shift round.
  constexpr float kCarried = 12582912.0f + kDigitBase / 2;
  uint32_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(fmaf(x[Int4Codes::byte_input(i)], inverse, kCarried));
  const auto join = [&] {
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
  };
  const uint32_t low = join();
#pragma unroll
  for (uint32_t& each : bits) each >>= 7;
  // In each byte seven bits less half of the base.
  return {join(), ((low & 0x7f7f7f7fu) ^ 0x40404040u) | (~low & 0x40404040u) << 1};
}

// Writes the digits of the eight elements of a lane, for which half a warp has a span, and what else is known of it.
// Digits are [quarter][2][4], of eight inputs each, the high ones first.
template <typename Format>
__device__ __forceinline__ void write_span(const float (&x)[8], uint8_t* digits, SpanOfRow<Format>* known, bool valid) {
  constexpr int kGroupLanes = Format::kGroup / 8;
  const int member = threadIdx.x % kHalfWarp;
  // As integers, magnitudes have the same order, and what is not a number is the greatest.
  uint32_t magnitude = 0;
#pragma unroll
  for (const float each : x) magnitude = max(magnitude, __float_as_uint(each) & 0x7fffffffu);
#pragma unroll
  for (int offset = kHalfWarp / 2; offset > 0; offset /= 2)
    magnitude = max(magnitude, __shfl_xor_sync(kAllLanes, magnitude, offset));
  const float largest = __uint_as_float(magnitude);
  const float inverse = largest > 1e-30f ? __fdividef(kLargestInteger, largest) : 0.0f;
  const uint2 first = split_digits(x, inverse), second = split_digits(x + 4, inverse);
  constexpr int kOnes = 0x01010101;
  const int high = __dp4a(static_cast<int>(first.x), kOnes, __dp4a(static_cast<int>(second.x), kOnes, 0));
  int sum = __dp4a(static_cast<int>(first.y), kOnes, __dp4a(static_cast<int>(second.y), kOnes, high * kDigitBase));
#pragma unroll
  for (int offset = kGroupLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  if (!valid) return;
  auto* to = reinterpret_cast<uint2*>(digits) + member / 4 * 8 + member % 4;
  to[0] = {first.x, second.x};
  to[4] = {first.y, second.y};
  if (member == 0) known->step = largest * (1.0f / kLargestInteger);
  if (member % kGroupLanes == 0) known->sums[member / kGroupLanes] = sum;
}

// Writes the digits of a warp's spans. With a norm, its weight is where they come. Returns the lane's sum of squares.
template <typename T, typename Format, bool kNorm>
__device__ __forceinline__ float write_row(const PackedProduct& p, int warp, int lane, uint8_t* digits,
                                           SpanOfRow<Format>* known) {
  const int spans = p.weight.spans(), member = lane % kHalfWarp, half = lane / kHalfWarp;
  float square = 0;
#pragma unroll 1
  for (int begin = warp; begin < spans; begin += 2 * kOneRowPasses * kOneRowWarps) {
    uint4 pack[kOneRowPasses];
#pragma unroll
    for (int i = 0; i < kOneRowPasses; ++i) {
      const int input = (begin + (2 * i + half) * kOneRowWarps) * kPackedSpan + 8 * member;
      const auto* x = reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + input);
      pack[i] = input < p.weight.inputs ? *x : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kOneRowPasses; ++i) {
      if (begin + 2 * i * kOneRowWarps >= spans) break;
      const int span = begin + (2 * i + half) * kOneRowWarps;
      const bool valid = span < spans;
      uint8_t* to = digits + span * kDigitBytes;
      float value[8];
      unpack8<T>(pack[i], value);
      if constexpr (kNorm) {
        float factor[8];
        unpack8<T>(valid ? reinterpret_cast<const uint4*>(to)[member] : uint4{}, factor);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          square += value[j] * value[j];
          value[j] *= factor[j];
        }
        __syncwarp();
      }
      write_span<Format>(value, to, known + span, valid);
    }
  }
  return square;
}

// sum += tiles @ row over a span: of tile m, lanes 4 g get outputs g and g + 8. `digits` are the lane's of the first
// quarter.
template <typename T, typename Format, int kTiles>
__device__ __forceinline__ void multiply_digits(float (&sum)[kTiles][2], const uint8_t* records, int tile_bytes,
                                                const RecordLayout<Format>& layout, int lane, const uint8_t* digits,
                                                const SpanOfRow<Format>& known) {
  constexpr int kGroupQuarters = Format::kGroup / 32, kWordQuarters = Format::kSteps / 2;
  constexpr float kTimes = static_cast<float>(Format::template kTimes<T>) / Format::kByteTimes;
  uint2 x[kQuarters];
#pragma unroll
  for (int q = 0; q < kQuarters; ++q) x[q] = reinterpret_cast<const uint2*>(digits)[q * 8];
  uint4 words[kTiles];
#pragma unroll
  for (int group = 0; group < layout.kGroups; ++group) {
    const int total = known.sums[group], place = group * 8 + lane / 4;
    int first[kTiles][4] = {}, second[kTiles][4] = {};  // sums that do not wait for each other
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if constexpr (!Format::kZeros) {
        first[m][1] = -Format::kMiddle * total;
        first[m][3] = -Format::kMiddle * Format::kByteTimes * total;
      }
    }
#pragma unroll
    for (int q = group * kGroupQuarters; q < (group + 1) * kGroupQuarters; ++q) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (q % kWordQuarters == 0) words[m] = load_codes(records + m * tile_bytes, q / kWordQuarters, lane);
        uint32_t a[4];
        Format::bytes(words[m], q % kWordQuarters, a);
        multiply_add_bytes(q % 2 == 0 ? first[m] : second[m], a, x[q]);
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const uint8_t* record = records + m * tile_bytes;
      const float2 scale = load_scales<T>(record, layout, place);
      int value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        value[i] = (first[m][2 * i] + second[m][2 * i]) * kDigitBase + first[m][2 * i + 1] + second[m][2 * i + 1];
      if constexpr (Format::kZeros) {
        const uint32_t zeros = reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place];
        value[0] -= static_cast<int>(zeros & 255) * total;
        value[1] -= static_cast<int>(zeros >> 8) * Format::kByteTimes * total;
      }
      sum[m][0] += __int2float_rn(value[0]) * (scale.x * known.step);
      sum[m][1] += __int2float_rn(value[1]) * (scale.y * (known.step * kTimes));
    }
  }
}

// One output from the sums of the warps, [kTiles][kOneRowWarps][kPackedTile], of which `sums` is the first of its own.
template <typename T, int kTiles, bool kNorm>
__device__ __forceinline__ void finish_output(const PackedProduct& p, int output, const float* sums,
                                              const float (&squares)[kOneRowWarps], T rest) {
  float total[2] = {};
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int w = 0; w < kOneRowWarps; ++w) total[m] += sums[(m * kOneRowWarps + w) * kPackedTile];
  }
  if constexpr (kNorm) {
    float all = 0;
#pragma unroll
    for (const float each : squares) all += each;
    const float scale = rsqrtf(all / p.weight.inputs + p.eps);
    total[0] *= scale;
    total[1] *= scale;
  }
  static_cast<T*>(p.out)[output] = from_float<T>(activate<T>(p, output, total[0], total[1]) + to_float(rest));
}

// An item is kTiles tiles of outputs (those of the gate and of the other matrix where gated). Blocks take items in
// turn, their warps spans of the inputs, whose sums are added at the end of an item. A warp writes the digits of its
// own spans of the row, and has a ring of records, which begins to fill before the preceding kernel has ended.
template <typename T, typename Format, int kTiles, bool kNorm>
__global__ void __launch_bounds__((kOneRowBound<kTiles, kNorm>), kNorm ? 1 : 2)
    multiply_one_row(PackedProduct p, OneRowPlan plan) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ uint4 memory[];
  __shared__ float squares[kOneRowWarps];
  __shared__ uint64_t barriers[kOneRowWarps][kOneRowStages];

  const RecordLayout<Format> layout(p.weight.shape);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  const bool multiplies = warp < kOneRowWarps;
  const int spans = p.weight.spans(), items = p.weight.tiles() / kTiles, first_span = multiplies ? warp : spans;
  auto* bytes = reinterpret_cast<uint8_t*>(memory);
  uint8_t* digits = bytes + plan.digits_at;
  auto* known = reinterpret_cast<SpanOfRow<Format>*>(bytes + plan.known_at);
  RecordRing ring(p, plan, kTiles, first_span, bytes + warp * plan.stages * plan.stage_bytes,
                  barriers[warp % kOneRowWarps]);
#pragma unroll 1
  for (int d = 0; d < plan.stages; ++d) ring.template ask<kTiles>(d);
  if constexpr (kNorm) {
#pragma unroll 1
    for (int span = first_span + lane / kHalfWarp * kOneRowWarps; span < spans; span += 2 * kOneRowWarps) {
      const int chunk = lane % kHalfWarp, input = span * kPackedSpan + 8 * chunk;
      copy_async_cached(digits + span * kDigitBytes + chunk * kChunk, static_cast<const T*>(p.norm_weight) + input,
                        input < p.weight.inputs);
    }
    end_stage();
  }
  wait_for_predecessor();
  // Blocks of the next kernel ask for its weights as soon as they are there: best when these ask for no more.
  const auto release = [&] {
    if (warp == 0 && ring.at_end()) release_successor();
  };
  release();
  if constexpr (kNorm) wait_for_stage<0>();
  if (multiplies) {
    const float square = write_row<T, Format, kNorm>(p, warp, lane, digits, known);
    if constexpr (kNorm) {
      const float all = warp_sum(square);
      if (lane == 0) squares[warp] = all;
    }
  }
  __syncwarp();

  // Columns beyond those of the two digits repeat the last.
  const uint8_t* own_digits = digits + (min(lane / 4, 1) * 4 + lane % 4) * sizeof(uint2);
  float* sums = reinterpret_cast<float*>(bytes + plan.sums_at);
  int sums_step = kTiles * kOneRowWarps * kPackedTile;
  const int outputs = p.weight.outputs / kTiles;
  // The warp that finishes an item: one beyond those that multiply, or another each time.
  int finisher = kNorm ? kOneRowWarps : 0;
#pragma unroll 1
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int output = item * kPackedTile + lane;
    const bool finishes = warp == finisher && lane < kPackedTile && output < outputs;
    T rest = from_float<T>(0.0f);
    if (finishes && p.residual) rest = static_cast<const T*>(p.residual)[output];
    float sum[kTiles][2] = {};
#pragma unroll 1
    for (int span = first_span; span < spans; span += kOneRowWarps) {
      multiply_digits<T, Format, kTiles>(sum, ring.wait(), plan.tile_bytes, layout, lane,
                                         own_digits + span * kDigitBytes, known[span]);
      ring.template next<kTiles>();
      release();
    }
    if (multiplies && lane % 4 == 0) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        float* own = sums + (m * kOneRowWarps + warp) * kPackedTile + lane / 4;
        own[0] = sum[m][0];
        own[8] = sum[m][1];
      }
    }
    __syncthreads();
    if (finishes) finish_output<T, kTiles, kNorm>(p, output, sums + lane, squares, rest);
    sums += sums_step;
    sums_step = -sums_step;
    if constexpr (!kNorm) finisher = (finisher + 1) % kOneRowWarps;
  }
#endif
}

// Queues the product where there is room for it.
template <typename T, typename Format, int kTiles, bool kNorm>
bool launch_one_row(const PackedProduct& p, cudaStream_t stream) {
  OneRowPlan plan;
  if (!plan.arrange(p, kTiles, sizeof(SpanOfRow<Format>))) return false;
  LaunchShape shape{dim3(plan.blocks), kOneRowThreads<kNorm>, size_t(plan.shared_bytes)};
  shape.leaves_shared = true;
  launch(kPackedName, multiply_one_row<T, Format, kTiles, kNorm>, shape, stream, p, plan);
  return true;
}

}  // namespace constrain::cuda
