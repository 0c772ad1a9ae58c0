// The product of a few tiles of a packed weight with a few rows, over one span: what the kernels for products share.
#pragma once

#include <cstdint>

#include "cuda/mma.cuh"
#include "cuda/packed/codes.cuh"
#include "cuda/packed/packed.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

constexpr int kRowsOfProduct = 8;  // as a tensor core's product takes them
constexpr int kChunk = 16;         // bytes of an asynchronous copy
constexpr int kStepInputs = 16;    // of a tensor core's product
constexpr int kQuarterBytes = 64;  // of a row of x
constexpr int kSpanChunks = kPackedSpan * 2 / kChunk;
constexpr int kSteps = kPackedSpan / kStepInputs;

// Where a record's parts are, from its form.
template <typename Format>
struct RecordLayout {
  static constexpr int kGroups = kPackedSpan / Format::kGroup;
  static constexpr int kCodeBytes = kSteps / Format::kSteps * kWarp * kChunk;

  static constexpr int kByteGroups = Format::kSubscales ? kPackedSpan / kSubgroup : Format::kZeros ? kGroups : 0;

  FloatType scales;
  int bytes, zeros_at;

  __device__ __forceinline__ explicit RecordLayout(const RecordShape& shape)
      : scales(shape.scales),
        bytes(kCodeBytes + kGroups * shape.scale_bytes() + kByteGroups * kPackedTile),
        zeros_at(kCodeBytes + kGroups * shape.scale_bytes()) {}
};

// Scales of rows g and g + 8 of a tile in a group.
template <typename T, typename Format>
__device__ __forceinline__ float2 load_scales(const uint8_t* record, const RecordLayout<Format>& layout, int place) {
  // Without branches, which would keep the products of several groups apart.
  const auto* from = reinterpret_cast<const uint32_t*>(record + RecordLayout<Format>::kCodeBytes);
  const bool wide = layout.scales == FloatType::float32, is_half = layout.scales == FloatType::float16;
  const uint32_t first = from[place << wide], second = from[(place << wide) + wide];
  const float2 half = unpack2<__half>(first), bfloat = unpack2<__nv_bfloat16>(first);
  float2 scale{choose(wide, __uint_as_float(first), choose(is_half, half.x, bfloat.x)),
               choose(wide, __uint_as_float(second), choose(is_half, half.y, bfloat.y))};
  if constexpr (Format::template kTimes<T> != 1) scale.y *= 1.0f / Format::template kTimes<T>;
  return scale;
}

// Zero points of rows g and g + 8 of a tile in a group.
template <typename Format>
__device__ __forceinline__ float2 load_zeros(const uint8_t* record, const RecordLayout<Format>& layout, int place) {
  const uint32_t pair = reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place];
  return {static_cast<float>(pair & 255), static_cast<float>(pair >> 8)};
}

// Offsets that the operands of rows g and g + 8 of a tile hold in addition to the weights of a group.
template <typename T, typename Format>
__device__ __forceinline__ float2 load_carried(const uint8_t* record, const RecordLayout<Format>& layout, int place) {
  uint32_t pair = Format::kMiddle * 0x0101u;
  if constexpr (Format::kZeros) pair = reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place];
  return {Format::template carried<T>(pair & 255, 0), Format::template carried<T>(pair >> 8, 1)};
}

// As pairs of T, which hold them exactly.
template <typename T, typename Format>
__device__ __forceinline__ void load_extra(const uint8_t* record, const RecordLayout<Format>& layout, int place,
                                           uint32_t (&extra)[2]) {
  const float2 carried = load_carried<T>(record, layout, place);
  extra[0] = pack2<T>(carried.x, carried.x);
  extra[1] = pack2<T>(carried.y, carried.y);
}

template <typename T>
__device__ __forceinline__ void subtract_extra(uint32_t (&a)[4], const uint32_t (&extra)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = subtract2<T>(a[i], extra[i % 2]);
}

// Scales of the 16 inputs of a quarter among which a lane has eight, for rows g and g + 8, where the codes have such.
template <typename T, typename Format>
__device__ __forceinline__ void load_subscales(const uint8_t* record, const RecordLayout<Format>& layout, int quarter,
                                               int lane, uint32_t (&scale)[2]) {
  if constexpr (Format::kSubscales) {
    const int place = (quarter * 2 + lane % 4 / 2) * 8 + lane / 4;
    Format::template subscales<T>(reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place], scale);
  }
}

// Codes of a lane for Format::kSteps products: the n-th 16 bytes.
__device__ __forceinline__ uint4 load_codes(const uint8_t* record, int n, int lane) {
  return reinterpret_cast<const uint4*>(record)[n * kWarp + lane];
}

// Adds the sums of rows of x over a step, as ones @ x.T.
template <typename T>
__device__ __forceinline__ void add_rows(float (&sums)[4], const uint32_t (&b)[2]) {
  constexpr uint32_t kOne2 = kIsHalf<T> ? 0x3c003c00u : 0x3f803f80u;
  multiply_add<T>(sums, {kOne2, kOne2, kOne2, kOne2}, b);
}

// How `multiply_span` takes away what operands carry beside the weights: it is subtracted from them, or from their
// sums, times the sums of the rows of x. These are added up, or known already.
enum class Offsets { subtracted, summed, known };

// sum += tiles @ columns.T over a span. Of tile m, whose record is at m * tile_bytes, the lane 4 g + t gets outputs g
// and g + 8 of the rows 2 t and 2 t + 1 of each eight. `columns(quarter, n)` returns the lane's 16 bytes, at 8 t, of
// row g of the n-th eight rows. Scales multiply the sums of a group, so that the weights are rounded nowhere. Known
// sums of rows are those of 2 t and 2 t + 1, four pairs a group.
template <typename T, typename Format, Offsets kOffsets, int kTiles, int kColumns, typename Columns>
__device__ __forceinline__ void multiply_span(float (&sum)[kTiles][kColumns][4], const uint8_t* records, int tile_bytes,
                                              const RecordLayout<Format>& layout, int lane, const Columns& columns,
                                              const float2* known = nullptr) {
  constexpr int kGroupSteps = Format::kGroup / kStepInputs;
  constexpr bool kCarries = Format::template kCarries<T, Format::kZeros>,
                 kFolds = kCarries && kOffsets != Offsets::subtracted;
  // Products of tensor cores take long to arrive, so that few sums are each made of two, which do not wait for another.
  constexpr int kChains = kTiles * kColumns == 1 && kGroupSteps > 2 ? 2 : 1;
  uint4 words[kTiles], x[kColumns];
  uint32_t scale[kTiles][2] = {};
#pragma unroll
  for (int group = 0; group < layout.kGroups; ++group) {
    const int place = group * 8 + lane / 4;
    float part[kChains][kTiles][kColumns][4] = {}, rows[kChains][kColumns][4] = {};
    uint32_t extra[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) load_extra<T>(records + m * tile_bytes, layout, place, extra[m]);
#pragma unroll
    for (int step = group * kGroupSteps; step < (group + 1) * kGroupSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        if (step % 2 == 0) x[n] = columns(step / 2, n);
        const uint32_t b[2] = {step % 2 == 0 ? x[n].x : x[n].z, step % 2 == 0 ? x[n].y : x[n].w};
        if constexpr (kFolds && kOffsets == Offsets::summed) add_rows<T>(rows[step % kChains][n], b);
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const uint8_t* record = records + m * tile_bytes;
        if (step % Format::kSteps == 0) words[m] = load_codes(record, step / Format::kSteps, lane);
        if (step % 2 == 0) load_subscales<T>(record, layout, step / 2, lane, scale[m]);
        uint32_t a[4];
        Format::template operands<T>(words[m], step % Format::kSteps, scale[m], a);
        if constexpr (kCarries && !kFolds) subtract_extra<T>(a, extra[m]);
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          multiply_add<T>(part[step % kChains][m][n], a,
                          {step % 2 == 0 ? x[n].x : x[n].z, step % 2 == 0 ? x[n].y : x[n].w});
      }
    }
    float row_sum[kColumns][2];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        row_sum[n][i] = kChains == 2 ? rows[0][n][i] + rows[kChains - 1][n][i] : rows[0][n][i];
    }
    if constexpr (kFolds && kOffsets == Offsets::known) {
      const float2 pair = known[group * (kRowsOfProduct / 2)];
      row_sum[0][0] = pair.x, row_sum[0][1] = pair.y;
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const float2 factor = load_scales<T>(records + m * tile_bytes, layout, place);
      const float2 carried = load_carried<T>(records + m * tile_bytes, layout, place);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float value = part[0][m][n][i];
          if constexpr (kChains == 2) value += part[1][m][n][i];
          if constexpr (kFolds) value -= (i < 2 ? carried.x : carried.y) * row_sum[n][i % 2];
          sum[m][n][i] += value * (i < 2 ? factor.x : factor.y);
        }
      }
    }
  }
}

// One output of a row without the residual, from its sums over the inputs: of the gate and the other matrix where
// gated.
template <typename T>
__device__ __forceinline__ float activate(const PackedProduct& p, int output, float first, float second) {
  const T* bias = static_cast<const T*>(p.bias);
  const float value = first + (bias ? to_float(bias[output]) : 0.0f);
  if (!p.gated) return value;
  return gated(value, second + (bias ? to_float(bias[p.weight.outputs / 2 + output]) : 0.0f), p.gate);
}

template <typename T>
__device__ __forceinline__ void finish(const PackedProduct& p, int output, int row, float first, float second) {
  float value = activate<T>(p, output, first, second);
  if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
}

__device__ __forceinline__ float pick(const float4& values, int i) {
  return i == 0 ? values.x : i == 1 ? values.y : i == 2 ? values.z : values.w;
}

// A fragment is what a lane has of the sums of a tile: `output` and the eighth after it, of `row` and the next. Those
// beyond `all` outputs or the rows are left out.
template <typename T>
__device__ __forceinline__ float4 load_residual(const PackedProduct& p, int output, int all, int row) {
  if (!p.residual) return {};
  const T* residual = static_cast<const T*>(p.residual) + row * p.residual_stride + output;
  const auto read = [&](int i) {
    const bool valid = output + i / 2 * 8 < all && row + i % 2 < p.rows;
    return valid ? to_float(residual[i / 2 * 8 + i % 2 * p.residual_stride]) : 0.0f;
  };
  return make_float4(read(0), read(1), read(2), read(3));
}

template <typename T>
__device__ __forceinline__ void finish_fragment(const PackedProduct& p, int output, int all, int row,
                                                const float4& first, const float4& second, const float4& rest) {
  T* out = static_cast<T*>(p.out) + row * p.out_stride + output;
#pragma unroll 1  // the activation is much code
  for (int i = 0; i < 4; ++i) {
    if (output + i / 2 * 8 >= all || row + i % 2 >= p.rows) continue;
    const float value = activate<T>(p, output + i / 2 * 8, pick(first, i), pick(second, i));
    out[i / 2 * 8 + i % 2 * p.out_stride] = from_float<T>(value + pick(rest, i));
  }
}

}  // namespace constrain::cuda
