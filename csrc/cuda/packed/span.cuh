// The product of a few tiles of a packed weight with a few rows, over one span: what the kernels for products share.
#pragma once

#include <cstdint>

#include "cuda/mma.cuh"
#include "cuda/packed/codes.cuh"
#include "cuda/packed/packed.cuh"

namespace constrain::cuda {

constexpr int kRowsOfProduct = 8;  // as a tensor core's product takes them
constexpr int kChunk = 16;         // bytes of an asynchronous copy

// Where a record's parts are, from its form.
struct RecordLayout {
  int bytes, scales_at, zeros_at;
  int shift;  // of a quarter, to its group
  FloatType scales;
  bool zeros;

  __device__ __forceinline__ explicit RecordLayout(const RecordShape& shape)
      : bytes(shape.bytes()),
        scales_at(shape.code_bytes()),
        zeros_at(shape.code_bytes() + shape.groups() * shape.scale_bytes()),
        shift(shape.group == 128  ? 2
              : shape.group == 64 ? 1
                                  : 0),
        scales(shape.scales),
        zeros(shape.zeros) {}

  __device__ __forceinline__ bool begins_group(int quarter) const { return (quarter & ((1 << shift) - 1)) == 0; }
  __device__ __forceinline__ bool ends_group(int quarter) const { return begins_group(quarter + 1); }
};

// Scales of rows g and g + 8 in a quarter.
__device__ __forceinline__ float2 load_scales(const uint8_t* record, const RecordLayout& layout, int quarter, int g) {
  const int place = (quarter >> layout.shift) * 8 + g;
  if (layout.scales == FloatType::float32) return reinterpret_cast<const float2*>(record + layout.scales_at)[place];
  const uint32_t pair = reinterpret_cast<const uint32_t*>(record + layout.scales_at)[place];
  return layout.scales == FloatType::float16 ? unpack2<__half>(pair) : unpack2<__nv_bfloat16>(pair);
}

template <typename T, typename Format>
__device__ __forceinline__ void load_zeros(const uint8_t* record, const RecordLayout& layout, int quarter, int g,
                                           uint32_t (&zero)[2]) {
  const int place = (quarter >> layout.shift) * 8 + g;
  const uint32_t pair = reinterpret_cast<const uint16_t*>(record + layout.zeros_at)[place];
  zero[0] = Format::template offset<T>(pair & 255);
  zero[1] = Format::template offset<T>(pair >> 8);
}

// The 32 inputs of a quarter that a lane holds of rows g and g + 8 of a tile, as operands of two tensor core products.
template <typename Format>
__device__ __forceinline__ typename Format::Words load_codes(const uint8_t* record, int quarter, int lane) {
  return reinterpret_cast<const typename Format::Words*>(record)[quarter * 32 + lane];
}

// sum += tiles @ columns.T over a span. Of tile m, whose record is at m * layout.bytes, the lane 4 g + t gets outputs g
// and g + 8 of the rows 2 t and 2 t + 1 of each eight. `columns(quarter, n)` returns the lane's 16 bytes, at 8 t, of
// row g of the n-th eight rows. Scales multiply the sums of a group, so that the weights are rounded nowhere.
template <typename T, typename Format, int kTiles, int kColumns, typename Columns>
__device__ __forceinline__ void multiply_span(float (&sum)[kTiles][kColumns][4], const uint8_t* records,
                                              const RecordLayout& layout, int lane, const Columns& columns) {
  const int g = lane / 4;
  float part[kTiles][kColumns][4] = {};
  uint32_t zero[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) zero[m][0] = zero[m][1] = Format::template offset<T>(Format::kMiddle);
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    uint4 x[kColumns];
#pragma unroll
    for (int n = 0; n < kColumns; ++n) x[n] = columns(quarter, n);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const uint8_t* record = records + m * layout.bytes;
      if (layout.zeros && layout.begins_group(quarter)) load_zeros<T, Format>(record, layout, quarter, g, zero[m]);
      const auto words = load_codes<Format>(record, quarter, lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        Format::template operands<T>(words, half, zero[m], a);
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          if (half == 0)
            multiply_add<T>(part[m][n], a, {x[n].x, x[n].y});
          else
            multiply_add<T>(part[m][n], a, {x[n].z, x[n].w});
        }
      }
    }
    if (!layout.ends_group(quarter)) continue;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const float2 scale = load_scales(records + m * layout.bytes, layout, quarter, g);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[m][n][i] += part[m][n][i] * (i < 2 ? scale.x : scale.y);
          part[m][n][i] = 0;
        }
      }
    }
  }
}

// One output of a row, from its sums over the inputs: of the gate and the other matrix where gated.
template <typename T>
__device__ __forceinline__ void finish(const PackedProduct& p, int output, int row, float first, float second) {
  const T* bias = static_cast<const T*>(p.bias);
  float value = first + (bias ? to_float(bias[output]) : 0.0f);
  if (p.gated)
    value = gated(value, second + (bias ? to_float(bias[p.weight.outputs / 2 + output]) : 0.0f), p.gate);
  if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
}

}  // namespace constrain::cuda
