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

// Where a record's parts are, from its form.
template <typename Format>
struct RecordLayout {
  static constexpr int kGroups = kPackedSpan / Format::kGroup;
  static constexpr int kCodeBytes = sizeof(typename Format::Words) * kWarp * kQuarters;

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

template <typename T, typename Format>
__device__ __forceinline__ void load_zeros(const uint8_t* record, const RecordLayout<Format>& layout, int place,
                                           uint32_t (&zero)[2]) {
  uint32_t pair = Format::kMiddle * 0x0101u;
  if constexpr (Format::kZeros) pair = reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place];
  zero[0] = Format::template offset<T>(pair & 255, 0);
  zero[1] = Format::template offset<T>(pair >> 8, 1);
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

// The 32 inputs of a quarter that a lane holds of rows g and g + 8 of a tile, as operands of two tensor core products.
template <typename Format>
__device__ __forceinline__ typename Format::Words load_codes(const uint8_t* record, int quarter, int lane) {
  return reinterpret_cast<const typename Format::Words*>(record)[quarter * kWarp + lane];
}

// sum += tiles @ columns.T over a span. Of tile m, whose record is at m * layout.bytes, the lane 4 g + t gets outputs g
// and g + 8 of the rows 2 t and 2 t + 1 of each eight. `columns(quarter, n)` returns the lane's 16 bytes, at 8 t, of
// row g of the n-th eight rows. Scales multiply the sums of a group, so that the weights are rounded nowhere.
template <typename T, typename Format, int kTiles, int kColumns, typename Columns>
__device__ __forceinline__ void multiply_span(float (&sum)[kTiles][kColumns][4], const uint8_t* records,
                                              const RecordLayout<Format>& layout, int lane, const Columns& columns) {
  constexpr int kGroupQuarters = Format::kGroup / 32;
#pragma unroll
  for (int group = 0; group < layout.kGroups; ++group) {
    const int place = group * 8 + lane / 4;
    float part[kTiles][kColumns][4] = {};
    uint32_t zero[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) load_zeros<T>(records + m * layout.bytes, layout, place, zero[m]);
#pragma unroll
    for (int quarter = group * kGroupQuarters; quarter < (group + 1) * kGroupQuarters; ++quarter) {
      uint4 x[kColumns];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) x[n] = columns(quarter, n);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const auto words = load_codes<Format>(records + m * layout.bytes, quarter, lane);
        load_subscales<T>(records + m * layout.bytes, layout, quarter, lane, zero[m]);
        uint32_t first[4], second[4];
        Format::template operands<T, Format::kZeros>(words, 0, zero[m], first);
        Format::template operands<T, Format::kZeros>(words, 1, zero[m], second);
#pragma unroll
        for (int n = 0; n < kColumns; ++n) multiply_add<T>(part[m][n], first, {x[n].x, x[n].y});
#pragma unroll
        for (int n = 0; n < kColumns; ++n) multiply_add<T>(part[m][n], second, {x[n].z, x[n].w});
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const float2 scale = load_scales<T>(records + m * layout.bytes, layout, place);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][n][i] += part[m][n][i] * (i < 2 ? scale.x : scale.y);
      }
    }
  }
}

// One output of a row, from its sums over the inputs: of the gate and the other matrix where gated.
template <typename T>
__device__ __forceinline__ void finish(const PackedProduct& p, int output, int row, float first, float second) {
  const T* bias = static_cast<const T*>(p.bias);
  float value = first + (bias ? to_float(bias[output]) : 0.0f);
  if (p.gated) value = gated(value, second + (bias ? to_float(bias[p.weight.outputs / 2 + output]) : 0.0f), p.gate);
  if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
}

}  // namespace constrain::cuda
