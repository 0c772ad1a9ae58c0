// The main loop of experts whose weights are packed: as in ExpertTiles, but a stage of a ring is the record of a span.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/async_copy.cuh"
#include "cuda/experts/chosen.cuh"
#include "cuda/experts/expert_outputs.cuh"
#include "cuda/packed/packed.cuh"
#include "cuda/packed/span.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

// Operands of a block: `x`, with a row for each token or, `of_picks`, for each pick, and a tile of each of the one or
// two matrices of each expert that is listed from `begin` to `end`. An expert has `expert_tiles` tiles of `weight`.
struct PackedExpertSpan {
  const void* x;
  int64_t x_stride;
  bool of_picks;
  PackedWeight weight;
  int expert_tiles;
  int tile;
  int begin;
  int end;
};

template <typename T, typename Format, int kMatrices, int kGroups>
class PackedExpertTiles {
 public:
  using Sums = ExpertSums<kMatrices, kGroups>;
  // Records of a warp on their way, as many as let three blocks share a multiprocessor.
  static constexpr int kDepth = (Format::kSteps == 4 ? 6 : 4) / kMatrices;

  static size_t shared_bytes(const RecordShape& shape) {
    const size_t rings = size_t{kProductWarps} * kDepth * kMatrices * shape.bytes();
    return rings > sizeof(Sums) ? rings : sizeof(Sums);
  }

  // `rings` are `shared_bytes` of shared memory. `span` must outlive this.
  __device__ __forceinline__ PackedExpertTiles(const ChosenExperts& chosen, const PackedExpertSpan& span, uint4* rings)
      : chosen_(chosen),
        span_(span),
        layout_(span.weight.shape),
        rings_(rings),
        ring_(reinterpret_cast<uint8_t*>(rings) + warp_ * kDepth * kMatrices * layout_.bytes) {
    settle(fetched_);
    read_ = fetched_;
  }

  // Requests what the ring holds. Reads the matrices only.
  __device__ __forceinline__ void prefetch() {
#pragma unroll 1
    for (int slot = 0; slot < kDepth; ++slot) fetch(slot);
  }

  // Multiplies. All that was requested has arrived at the end.
  __device__ __forceinline__ void run() {
    const int stages = ((span_.end - span_.begin) * spans_ + kProductWarps - 1) / kProductWarps;
    int slot = 0;
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      multiply_stage(slot);
      __syncwarp();
      fetch(slot);
      slot = slot == kDepth - 1 ? 0 : slot + 1;
    }
  }

  // Writes the sums of the warps over the rings, for all threads of the block to read.
  __device__ __forceinline__ const Sums& store() {
    Sums& sums = *reinterpret_cast<Sums*>(rings_);
    sums.store(sum_);
    return sums;
  }

 private:
  // Position of a warp: an index in the list of experts, and a span of the inputs.
  struct Position {
    int place;
    int span;
  };

  __device__ __forceinline__ void settle(Position& at) const {
    while (at.span >= spans_) {
      at.span -= spans_;
      ++at.place;
    }
  }

  __device__ __forceinline__ void advance(Position& at) const {
    at.span += kProductWarps;
    settle(at);
  }

  __device__ __forceinline__ void fetch(int slot) {
    if (fetched_.place < span_.end) {
      const int chunks = layout_.bytes / kChunk;
      const int64_t tile = int64_t{chosen_.expert(fetched_.place)} * span_.expert_tiles + span_.tile;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        const int64_t own = (tile + m * (span_.expert_tiles / kMatrices)) * spans_ + fetched_.span;
        const uint8_t* from = static_cast<const uint8_t*>(span_.weight.records) + own * layout_.bytes + lane_ * kChunk;
        uint8_t* to = ring_ + (slot * kMatrices + m) * layout_.bytes + lane_ * kChunk;
        constexpr int kFull = RecordLayout<Format>::kCodeBytes / (kWarp * kChunk);
#pragma unroll
        for (int i = 0; i <= kFull; ++i)
          copy_async_where(i < kFull || i * kWarp + lane_ < chunks, to + i * kWarp * kChunk, from + i * kWarp * kChunk);
      }
      advance(fetched_);
    }
    end_stage();
  }

  __device__ __forceinline__ void multiply_stage(int slot) {
    if (read_.place >= span_.end) return;
    const uint32_t rows = chosen_.rows(read_.place);
    const T* from[kGroups];
    bool chosen[kGroups];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const int row = n * kRowGroup + group_;
      chosen[n] = rows >> row & 1;
      const int64_t number = span_.of_picks && chosen[n] ? chosen_.pick(read_.place, rows, row) : chosen[n] ? row : 0;
      from[n] = static_cast<const T*>(span_.x) + number * span_.x_stride + read_.span * kPackedSpan + member_ * 8;
    }
    const int left = span_.weight.inputs - read_.span * kPackedSpan - member_ * 8;
    const auto load = [&](int quarter, int n) {
      const bool valid = chosen[n] && quarter * 32 < left;
      return valid ? *reinterpret_cast<const uint4*>(from[n] + quarter * 32) : make_uint4(0, 0, 0, 0);
    };
    const uint8_t* records = ring_ + slot * kMatrices * layout_.bytes;
    if constexpr (kGroups == 1) {
      uint4 columns[kQuarters];  // read while the records are on their way
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) columns[quarter] = load(quarter, 0);
      wait_for_stage<kDepth - 1>();
      multiply_span<T, Format, Offsets::summed, kMatrices, kGroups>(sum_, records, layout_.bytes, layout_, lane_,
                                                                    [&](int quarter, int) { return columns[quarter]; });
    } else {
      wait_for_stage<kDepth - 1>();
      multiply_span<T, Format, Offsets::subtracted, kMatrices, kGroups>(sum_, records, layout_.bytes, layout_, lane_,
                                                                        load);
    }
    advance(read_);
  }

  const int warp_ = threadIdx.x / kWarp, lane_ = threadIdx.x % kWarp, group_ = lane_ / 4, member_ = lane_ % 4;
  const ChosenExperts& chosen_;
  const PackedExpertSpan& span_;
  const RecordLayout<Format> layout_;
  const int spans_ = span_.weight.spans();
  uint4* const rings_;
  uint8_t* const ring_;
  Position fetched_{span_.begin, warp_};
  Position read_{};
  float sum_[kMatrices][kGroups][4] = {};
};

}  // namespace constrain::cuda
