// Element types of tensors, and packs of 16 bytes of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

namespace constrain::cuda {

enum class FloatType { float32, float16, bfloat16 };

// Elements of type T in 16 bytes, the widest load.
template <typename T>
constexpr int kPack = 16 / sizeof(T);

// Calls `use` with a value of the 16-bit type, for the sake of its type.
template <typename Use>
void with_half_type(FloatType type, const char* name, Use&& use) {
  switch (type) {
    case FloatType::float16:
      return use(__half{});
    case FloatType::bfloat16:
      return use(__nv_bfloat16{});
    case FloatType::float32:
      break;
  }
  throw std::invalid_argument(std::string(name) + ": needs float16 or bfloat16");
}

template <typename T>
__device__ __forceinline__ float to_float(T x) {
  return static_cast<float>(x);
}

template <typename T>
__device__ __forceinline__ T from_float(float x) {
  return static_cast<T>(x);
}

// The two elements of a 32-bit word of T.
template <typename T>
__device__ __forceinline__ float2 unpack2(uint32_t word) {
  const auto* pair = reinterpret_cast<const T*>(&word);
  return make_float2(to_float(pair[0]), to_float(pair[1]));
}

template <typename T>
__device__ __forceinline__ uint32_t pack2(float x, float y) {
  const T pair[2] = {from_float<T>(x), from_float<T>(y)};
  return *reinterpret_cast<const uint32_t*>(pair);
}

// Eight elements of T, as floats.
template <typename T>
__device__ __forceinline__ void unpack8(const uint4& pack, float (&x)[8]) {
  const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack2<T>(words[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

template <typename T>
__device__ __forceinline__ uint4 pack8(const float (&x)[8]) {
  return make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]), pack2<T>(x[6], x[7]));
}

// Products of eight pairs, rounded to T; `squares` grows by the squares of the first factors.
template <typename T>
__device__ __forceinline__ uint4 multiply8(const uint4& x, const uint4& y, float& squares) {
  float a[8], b[8];
  unpack8<T>(x, a);
  unpack8<T>(y, b);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares += a[i] * a[i];
    b[i] *= a[i];
  }
  return pack8<T>(b);
}

}  // namespace constrain::cuda
