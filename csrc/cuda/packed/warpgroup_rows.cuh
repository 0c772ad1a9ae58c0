// The kernel for products of weights of four bits with 17 to 64 rows by warpgroups (compute capability 9.0). With eight
// bits, more bytes must be on their way than a block has room for beside the rows.
//
// Weights are tiny operands (packed/codes.cuh), which take half the instructions of whole ones: the bits of codes are
// those of numbers near the least of their type. The rows of x are multiplied by a large power of two instead, so that
// products leave the range where floats lose bits; scales of groups make up for both. A bfloat16 has room for that up
// to 2^55.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/cluster.cuh"
#include "cuda/launch.cuh"
#include "cuda/packed/bulk.cuh"
#include "cuda/packed/many_rows.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/warpgroup.cuh"

namespace constrain::cuda {

constexpr int kProductGroups = 2;  // warpgroups that multiply
constexpr int kProductWarps = kProductGroups * kWarpgroupWarps;
constexpr int kProductTiles = 2;  // of a warp
constexpr int kShareTiles = kProductWarps * kProductTiles;
constexpr int kLoadWarps = 4;
constexpr int kLoadThreads = kLoadWarps * kWarp;
constexpr int kShareThreads = kProductWarps * kWarp + kLoadThreads;
constexpr int kShareColumns = 4;  // eights of rows
constexpr int kShareRows = kShareColumns * kRowsOfProduct;
constexpr int kRowStages = 4;
constexpr int kHeldSpans = 4;  // of rows on their way to registers
// Stride of a row of sums in floats, padded so that lanes use different banks of shared memory.
constexpr int kSumsStride = kShareTiles * kPackedTile + 4;
static_assert(kShareRows * kQuarters == kLoadThreads, "a thread brings a quarter of a row");

// Of records, two spans in each. A pair is asked for once four spans before its end have been used, and these must not
// wait for it.
constexpr int kPairStages = 4;
static_assert(kPairStages * 2 > kRowStages);

// A stage of rows: of each quarter of a span, 16 bytes of every row, then the next 16 bytes, in the order of the inner
// dimension of products; then the sums of the rows. Quarters are apart, so that lanes use different banks.
constexpr int kChunkStep = kShareRows * kChunk;
constexpr int kQuarterStep = 4 * kChunkStep + 32;
constexpr int kRowSumsAt = kQuarters * kQuarterStep;
constexpr int kRowStageBytes = kRowSumsAt + kShareRows * static_cast<int>(sizeof(float));
static_assert(kRowStageBytes % 16 == 0);

// The power of two that rows are multiplied by: with a bfloat16, which has the range of a float.
template <typename T, typename Format>
constexpr int kRowPower = Format::template kTinyPower<T> > 64 ? 72 : 0;

// What multiplies sums of tiny operands and such rows beside the scales: a power of two.
template <typename T, typename Format>
__device__ __forceinline__ float tiny_factor() {
  return __int_as_float((127 + Format::template kTinyPower<T> - kRowPower<T, Format>) << 23);
}

// What a block takes part in: spans of some tiles, and rows.
struct BlockShare {
  int tiles, block_tile;  // of one matrix; and the block's first one
  int begin, count;       // spans
  int first_row;

  __device__ __forceinline__ explicit BlockShare(const PackedProduct& p) {
    const int spans = p.weight.spans();
    tiles = p.gated ? p.weight.tiles() / 2 : p.weight.tiles();
    block_tile = blockIdx.x * (p.gated ? kProductWarps : kShareTiles);
    begin = spans * blockIdx.y / gridDim.y;
    count = spans * (blockIdx.y + 1) / gridDim.y - begin;
    first_row = blockIdx.z * kShareRows;
  }

  // The n-th tile of the block: where gated, those of the gate come first. The last tile stands in for those beyond it.
  __device__ __forceinline__ int tile(const PackedProduct& p, int n) const {
    if (!p.gated) return min(block_tile + n, tiles - 1);
    return min(block_tile + n % kProductWarps, tiles - 1) + n / kProductWarps * tiles;
  }
};

// The shared memory of a block: stages of rows, then of records, [kShareTiles][2] a stage.
struct BlockStages {
  uint8_t *rows, *records;
  int record_bytes, pair_bytes;
  uint32_t records_full, rows_full, rows_empty;  // barriers

  __device__ __forceinline__ const uint8_t* record(int span, int n) const {
    return records + span / 2 % kPairStages * pair_bytes + (n * 2 + span % 2) * record_bytes;
  }
  __device__ __forceinline__ uint8_t* row_stage(int span) const { return rows + span % kRowStages * kRowStageBytes; }
};

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Brings records and rows: each warp asks for the records of some tiles, a lane for those of one, and each thread
// brings a quarter of a row. The words of its 16-byte chunks are transposed to the order of the weights' lanes.
template <typename T, typename Format>
class BlockLoader {
 public:
  __device__ __forceinline__ BlockLoader(const PackedProduct& p, const BlockShare& share, const BlockStages& stages)
      : stages_(stages), count_(share.count), lane_(threadIdx.x % kWarp) {
    const int thread = threadIdx.x - kProductWarps * kWarp, place = thread / kWarp * kAsked + lane_;
    const int row = thread / kQuarters, quarter = thread % kQuarters, input = share.begin * kPackedSpan + quarter * 32;
    record_ = static_cast<const uint8_t*>(p.weight.records) +
              (int64_t{share.tile(p, place)} * p.weight.spans() + share.begin) * stages.record_bytes;
    record_to_ = shared_address(stages.records) + place * 2 * stages.record_bytes;
    x_ = static_cast<const T*>(p.x) + int64_t{min(share.first_row + row, p.rows - 1)} * p.x_stride + input;
    end_ = min(p.weight.inputs - input, share.count * kPackedSpan);
    row_at_ = quarter * kQuarterStep + row * kChunk;
    sums_at_ = kRowSumsAt + (thread / kWarp * 4 + lane_ % 4) * static_cast<int>(sizeof(float2));
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int pair = 0; pair < kPairStages && pair * 2 < count_; ++pair) ask(pair);
    wait_for_predecessor();
    release_successor();
    uint4 held[kHeldSpans][4];
#pragma unroll
    for (int h = 0; h < kHeldSpans; ++h) load(held[h], h);
#pragma unroll 1
    for (int first = 0; first < count_; first += kHeldSpans) {
#pragma unroll
      for (int h = 0; h < kHeldSpans; ++h) {
        const int span = first + h;
        if (span >= count_) break;
        if (span >= kRowStages) {
          wait_for_phase(stages_.rows_empty + h % kRowStages * kBarrierBytes, span / kRowStages - 1 & 1);
          // The records of that span, and of the one before, have been used too.
          if (h % 2 == 1) ask((span - kRowStages) / 2 + kPairStages);
        }
        store(held[h], span);
        load(held[h], span + kHeldSpans);
      }
    }
  }

 private:
  static constexpr int kAsked = kShareTiles / kLoadWarps;
  static_assert(kHeldSpans % kRowStages == 0 && kRowStages % 2 == 0);

  __device__ __forceinline__ void ask(int pair) {
    if (pair * 2 >= count_) return;
    const int stage = pair % kPairStages, bytes = min(count_ - pair * 2, 2) * stages_.record_bytes;
    const uint32_t barrier = stages_.records_full + stage * kBarrierBytes;
    if (lane_ == 0) arrive_expecting(barrier, kAsked * bytes);
    __syncwarp();
    if (lane_ < kAsked)
      copy_bulk(record_to_ + stage * stages_.pair_bytes, record_ + int64_t{pair * 2} * stages_.record_bytes, bytes,
                barrier);
  }

  __device__ __forceinline__ void load(uint4 (&held)[4], int span) {
    const auto* from = reinterpret_cast<const uint4*>(x_ + span * kPackedSpan);
    const int left = end_ - span * kPackedSpan;
    if (left >= kPackedSpan / kQuarters) {
#pragma unroll
      for (int c = 0; c < 4; ++c) held[c] = from[c];
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) held[c] = c * 8 < left ? from[c] : uint4{};
    }
  }

  __device__ __forceinline__ void store(uint4 (&x)[4], int span) {
    uint4 y[4] = {{x[0].x, x[1].x, x[2].x, x[3].x},
                  {x[0].y, x[1].y, x[2].y, x[3].y},
                  {x[0].z, x[1].z, x[2].z, x[3].z},
                  {x[0].w, x[1].w, x[2].w, x[3].w}};
    uint8_t* stage = stages_.row_stage(span);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if constexpr (kRowPower<T, Format> != 0) {
        constexpr uint32_t kPower2 = uint32_t{127 + kRowPower<T, Format>} * 0x00800080u;
        y[c] = multiply_chunk<T>(y[c], {kPower2, kPower2, kPower2, kPower2});
      }
      *reinterpret_cast<uint4*>(stage + row_at_ + c * kChunkStep) = y[c];
    }
    publish_to_products();
    if constexpr (Format::kMiddle != 0) {
      // The least number of T takes the place of one, as in the operands.
      constexpr uint32_t kOne2 = 0x00010001u;
      float sums[2][4] = {};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        multiply_add<T>(sums[0], {kOne2, kOne2, kOne2, kOne2}, {y[c].x, y[c].y});
        multiply_add<T>(sums[1], {kOne2, kOne2, kOne2, kOne2}, {y[c].z, y[c].w});
      }
      if (lane_ / 4 == 0)
        *reinterpret_cast<float2*>(stage + sums_at_) = {sums[0][0] + sums[1][0], sums[0][1] + sums[1][1]};
    }
    arrive(stages_.rows_full + span % kRowStages * kBarrierBytes);
  }

  const BlockStages& stages_;
  int count_, lane_;
  const uint8_t* record_;
  uint32_t record_to_;
  const T* x_;
  int end_, row_at_, sums_at_;
};

// Multiplies: each warp two tiles, whose operands are made in turns, while the tensor cores have those of the other.
template <typename T, typename Format>
class BlockMultiplier {
 public:
  __device__ __forceinline__ BlockMultiplier(const PackedProduct& p, const BlockStages& stages, int warp)
      : stages_(stages), layout_(p.weight.shape), warp_(warp), lane_(threadIdx.x % kWarp) {
    columns_ = describe_columns(shared_address(stages.rows), kChunkStep, kRowsOfProduct * kChunk);
  }

  __device__ __forceinline__ void run(int count) {
    if (count > 0) prepare(0, 0);
#pragma unroll 1
    for (int span = 0; span < count; ++span) {
      const int stage = span % kRowStages;
      wait_for_phase(stages_.rows_full + stage * kBarrierBytes, span / kRowStages & 1);
      multiply(0, stage);
      prepare(1, span);
      multiply(1, stage);
      float2 row_sums[kShareColumns];
      const auto* own = reinterpret_cast<const float2*>(stages_.row_stage(span) + kRowSumsAt) + lane_ % 4;
#pragma unroll
      for (int n = 0; n < kShareColumns; ++n) row_sums[n] = own[n * 4];
      wait_for_products<1>();
      add_up(0, row_sums);
      if (span + 1 < count) prepare(0, span + 1);
      wait_for_products<0>();
      if (lane_ == 0) arrive(stages_.rows_empty + stage * kBarrierBytes);
      add_up(1, row_sums);
    }
  }

  // Writes the sums of the block's tiles, [kShareRows][kSumsStride].
  __device__ __forceinline__ void leave(float* sums) const {
    float* own = sums + lane_ % 4 * 2 * kSumsStride + warp_ * kPackedTile + lane_ / 4;
#pragma unroll
    for (int m = 0; m < kProductTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kShareColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          own[(n * 8 + i % 2) * kSumsStride + m * kProductWarps * kPackedTile + i / 2 * 8] = sum_[m][n][i];
      }
    }
  }

 private:
  // Makes the operands of a tile.
  __device__ __forceinline__ void prepare(int m, int span) {
    if (m == 0 && span % 2 == 0)
      wait_for_phase(stages_.records_full + span / 2 % kPairStages * kBarrierBytes, span / 2 / kPairStages & 1);
    const uint8_t* record = stages_.record(span, m * kProductWarps + warp_);
    uint32_t subscale[2] = {};
    uint4 words;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step % Format::kSteps == 0) words = load_codes(record, step / Format::kSteps, lane_);
      if (step % 2 == 0) load_subscales<T>(record, layout_, step / 2, lane_, subscale);
      Format::template tiny_operands<T>(words, step % Format::kSteps, subscale, operands_[m][step]);
    }
    const float2 scale = load_scales<T>(record, layout_, lane_ / 4);
    constexpr float kTimes = static_cast<float>(Format::template kTimes<T>) / Format::kTinyTimes;
    scale_[m] = {scale.x * tiny_factor<T, Format>(), scale.y * (kTimes * tiny_factor<T, Format>())};
    if constexpr (Format::kZeros) {
      const float2 zeros = load_zeros(record, layout_, lane_ / 4);
      zero_[m] = {zeros.x, zeros.y * Format::kTinyTimes};
    }
  }

  __device__ __forceinline__ void multiply(int m, int stage) {
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step / 2 * kQuarterStep + step % 2 * 2 * kChunkStep;
      multiply_by_warpgroup<T>(part_[m], operands_[m][step], columns_ + (stage * (kRowStageBytes / 16) + at / 16),
                               step > 0);
    }
    end_products();
  }

  // Adds the products of a span, less what zero points stand for.
  __device__ __forceinline__ void add_up(int m, const float2 (&row_sums)[kShareColumns]) {
#pragma unroll
    for (int n = 0; n < kShareColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = part_[m][n][i];
        if constexpr (Format::kMiddle != 0) {
          constexpr float kMiddle = Format::kMiddle, kMiddle8 = kMiddle * Format::kTinyTimes;
          const float zero = Format::kZeros ? (i < 2 ? zero_[m].x : zero_[m].y) : (i < 2 ? kMiddle : kMiddle8);
          value -= zero * (i % 2 == 0 ? row_sums[n].x : row_sums[n].y);
        }
        sum_[m][n][i] += value * (i < 2 ? scale_[m].x : scale_[m].y);
      }
    }
  }

  const BlockStages& stages_;
  RecordLayout<Format> layout_;
  int warp_, lane_;
  uint64_t columns_;
  float sum_[kProductTiles][kShareColumns][4] = {}, part_[kProductTiles][kShareColumns][4];
  uint32_t operands_[kProductTiles][kSteps][4];
  float2 scale_[kProductTiles], zero_[kProductTiles];
};

// Four outputs from the sums of all blocks of the cluster, which are on their way together.
__device__ __forceinline__ float4 add_blocks(float* own, int blocks) {
  auto* place = reinterpret_cast<float4*>(own);
  if (blocks == 1) return *place;
  float4 values[kMostClusterBlocks], value{};
#pragma unroll
  for (int block = 0; block < kMostClusterBlocks; ++block)
    values[block] = block < blocks ? *in_block(place, block) : float4{};
#pragma unroll
  for (int block = 0; block < kMostClusterBlocks; ++block) value = add4(value, values[block]);
  return value;
}

// As `finish`, for four outputs whose memory is aligned.
template <typename T>
__device__ __forceinline__ void finish4(const PackedProduct& p, int output, int row, const float4& first,
                                        const float4& second) {
  uint2 residual{};
  if (p.residual)
    residual = *reinterpret_cast<const uint2*>(static_cast<const T*>(p.residual) + row * p.residual_stride + output);
  const float2 low = unpack2<T>(residual.x), high = unpack2<T>(residual.y);
  const float values[4] = {
      activate<T>(p, output, first.x, second.x) + low.x, activate<T>(p, output + 1, first.y, second.y) + low.y,
      activate<T>(p, output + 2, first.z, second.z) + high.x, activate<T>(p, output + 3, first.w, second.w) + high.y};
  *reinterpret_cast<uint2*>(static_cast<T*>(p.out) + row * p.out_stride + output) = {pack2<T>(values[0], values[1]),
                                                                                     pack2<T>(values[2], values[3])};
}

// Writes the block's part of the outputs of its cluster.
template <typename T>
__device__ __forceinline__ void finish_share(const PackedProduct& p, const BlockShare& share, float* sums) {
  const int blocks = gridDim.y, packs = (p.gated ? kProductWarps : kShareTiles) * kPackedTile / 4;
  const int outputs = p.gated ? p.weight.outputs / 2 : p.weight.outputs;
  const int all = min(kShareRows, p.rows - share.first_row) * packs;
  const bool aligned = (outputs | p.out_stride | p.residual_stride) % 4 == 0;
#pragma unroll 1
  for (int i = blockIdx.y * kShareThreads + threadIdx.x; i < all; i += blocks * kShareThreads) {
    const int row = i / packs, column = i % packs * 4, output = share.block_tile * kPackedTile + column;
    if (output >= outputs) continue;
    float* own = sums + row * kSumsStride + column;
    const float4 first = add_blocks(own, blocks);
    const float4 second = p.gated ? add_blocks(own + kProductWarps * kPackedTile, blocks) : float4{};
    if (aligned) {
      finish4<T>(p, output, share.first_row + row, first, second);
      continue;
    }
#pragma unroll 1
    for (int j = 0; j < min(4, outputs - output); ++j)
      finish<T>(p, output + j, share.first_row + row, pick(first, j), pick(second, j));
  }
}

// A block computes 16 tiles of outputs, eight of each matrix where gated, for 32 rows, over the spans that it does not
// leave to the other blocks of its cluster. One warpgroup brings what two multiply; barriers tell each what the other
// has done. The sums of the cluster are added at the end, each block adding some.
template <typename T, typename Format>
__global__ void __launch_bounds__(kShareThreads, 1) multiply_warpgroup_rows(PackedProduct p) {
#if CONSTRAIN_HAS_WARPGROUPS
  extern __shared__ uint4 memory[];  // stages, then sums
  __shared__ uint64_t barriers[kPairStages + 2 * kRowStages];
  const BlockShare share(p);
  const int record_bytes = RecordLayout<Format>(p.weight.shape).bytes;
  auto* bytes = reinterpret_cast<uint8_t*>(memory);
  const uint32_t first = shared_address(barriers);
  const BlockStages stages{bytes,
                           bytes + kRowStages * kRowStageBytes,
                           record_bytes,
                           kShareTiles * 2 * record_bytes,
                           first + 2 * kRowStages * kBarrierBytes,
                           first,
                           first + kRowStages * kBarrierBytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRowStages; ++i) {
      initialize_barrier(stages.rows_full + i * kBarrierBytes, kLoadThreads);
      initialize_barrier(stages.rows_empty + i * kBarrierBytes, kProductWarps);
    }
    for (int i = 0; i < kPairStages; ++i) initialize_barrier(stages.records_full + i * kBarrierBytes, kLoadWarps);
    publish_barriers();
  }
  __syncthreads();

  auto* sums = reinterpret_cast<float*>(memory);
  // The same in all lanes, as the compiler can see then.
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (warp >= kProductWarps) {
    BlockLoader<T, Format>(p, share, stages).run();
    __syncthreads();
  } else {
    BlockMultiplier<T, Format> multiplier(p, stages, warp);
    wait_for_predecessor();
    release_successor();
    multiplier.run(share.count);
    __syncthreads();  // nobody reads stages any more
    multiplier.leave(sums);
  }
  if (gridDim.y == 1)
    __syncthreads();
  else
    synchronize_cluster();
  finish_share<T>(p, share, sums);
  if (gridDim.y > 1) leave_cluster();  // the others may still read this block's sums
#endif
}

// Whether the kernel is compiled for this device, and is the fastest for the rows.
inline bool warpgroups_take(const PackedProduct& p) {
#ifdef CONSTRAIN_WARPGROUPS
  return p.rows > 2 * kRowsOfProduct && !p.norm_weight &&
         device_attribute(cudaDevAttrComputeCapabilityMajor, kPackedName) == 9;
#else
  return false;
#endif
}

template <typename T, typename Format>
void launch_warpgroup_rows(const PackedProduct& p, cudaStream_t stream) {
  const int per_block = p.gated ? kProductWarps : kShareTiles;
  const int tiles = p.gated ? p.weight.tiles() / 2 : p.weight.tiles();
  const int blocks = (tiles + per_block - 1) / per_block, row_blocks = (p.rows + kShareRows - 1) / kShareRows;
  const int processors = device_attribute(cudaDevAttrMultiProcessorCount, kPackedName);
  const size_t records = size_t{kShareTiles} * 2 * kPairStages * p.weight.shape.bytes();
  const size_t stages = size_t{kRowStages} * kRowStageBytes + records, sums = sizeof(float) * kShareRows * kSumsStride;
  LaunchShape shape{dim3(blocks, 1, row_blocks), kShareThreads, std::max(stages, sums)};
  static ClusterCounts counts;
  split_spans(shape, std::min(processors / (blocks * row_blocks), p.weight.spans()), counts,
              multiply_warpgroup_rows<T, Format>);
  launch(kPackedName, multiply_warpgroup_rows<T, Format>, shape, stream, p);
}

}  // namespace constrain::cuda
