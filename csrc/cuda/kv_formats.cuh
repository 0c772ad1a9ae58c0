// Formats of keys and values in the pages of a cache: floats, and KV quantisation.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

constexpr int kStateGroup = 32;  // states that share a scale

// Multiplies a group by the orthonormal Hadamard matrix. Neighbouring lanes hold the group, kEach states each.
template <int kEach>
__device__ __forceinline__ void hadamard_group(float (&x)[kEach]) {
  constexpr int kLanes = kStateGroup / kEach;
  constexpr float kNorm = 0.17677669529663687f;  // 1 / sqrt(32)
#pragma unroll
  for (int step = 1; step < kEach; step *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i & step) continue;
      const float sum = x[i] + x[i | step];
      x[i | step] = x[i] - x[i | step];
      x[i] = sum;
    }
  }
  const int lane = threadIdx.x % kWarp;
  const unsigned lanes = ((1u << kLanes) - 1) << lane / kLanes * kLanes;
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float other = __shfl_xor_sync(lanes, x[i], step);
      x[i] = lane & step ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] *= kNorm;
}

// Offset of the scale of the group that begins at a state.
__device__ __forceinline__ int64_t scale_bytes(int64_t states) { return states / kStateGroup * sizeof(__half); }

// Scales of the groups of a head, two in a word.
template <int kDim>
struct Scales {
  uint32_t pairs[kDim / (2 * kStateGroup)];
};

// States as they are. A format loads packs of eight states, and dequantizes them to 16-bit elements for tensor cores.
// The states are kFactor times as large, and multiplied by a Hadamard matrix where kHadamard.
template <typename T>
struct Plain {
  using Element = T;
  using Pack = uint4;
  static constexpr int kBits = 16;
  static constexpr bool kHadamard = false;
  static constexpr float kFactor = 1.0f;

  static __device__ __forceinline__ int64_t bytes(int64_t states) { return states * 2; }

  static __device__ __forceinline__ Pack load(const char* at, bool valid) { return load_once<Pack>(at, valid); }

  // The scales of a head.
  template <int kDim>
  static __device__ __forceinline__ Scales<kDim> load_scales(const char*, bool) {
    return {};
  }

  static __device__ __forceinline__ uint4 dequantize(const Pack& pack, uint32_t, int) { return pack; }

  static __device__ __forceinline__ void store(void* states, void*, int64_t first, float (&x)[8], bool valid) {
    if (valid) *reinterpret_cast<uint4*>(static_cast<T*>(states) + first) = pack8<T>(x);
  }
};

__device__ __forceinline__ __half2 as_half2(uint32_t word) { return *reinterpret_cast<const __half2*>(&word); }

__device__ __forceinline__ uint32_t as_word(__half2 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// Eight codes as numbers that are yet to be scaled: from -1 to 1 for 4 bits, from -2 to 2 for 8. Codes become the low
// bits of halves from 8 to 16, and the arithmetic on those is exact.
__device__ __forceinline__ uint4 decode_codes(const uint2& codes) {
  const auto pair = [](uint32_t word, unsigned bytes) {
    const uint32_t halves = __byte_perm(word, 0, bytes) * 2 + 0x48004800u;  // 8 + code / 64
    return as_word(__hsub2(as_half2(halves), __float2half2_rn(8.0f + 127.5f / 64)));
  };
  return make_uint4(pair(codes.x, 0x4140), pair(codes.x, 0x4342), pair(codes.y, 0x4140), pair(codes.y, 0x4342));
}

__device__ __forceinline__ uint4 decode_codes(uint32_t codes) {
  const auto pair = [codes](unsigned bytes) {
    // 8 + code / 128 of the lower bits of a byte, 8 + code / 8 of the upper: (bytes & mask) | 8.
    uint32_t halves;
    asm("lop3.b32 %0, %1, 0x00f0000f, %2, 0xea;" : "=r"(halves) : "r"(__byte_perm(codes, 0, bytes)), "r"(0x48004800u));
    const __half2 fractions = __hsub2(as_half2(halves), __float2half2_rn(8.0f));
    return as_word(__hfma2(fractions, __floats2half2_rn(16.0f, 1.0f), __float2half2_rn(-7.5f / 8)));
  };
  return make_uint4(pair(0x4040), pair(0x4141), pair(0x4242), pair(0x4343));
}

template <int kBits>
struct CodePack;
template <>
struct CodePack<8> {
  using type = uint2;
  static constexpr float kFactor = 64 / 127.5f;
};
template <>
struct CodePack<4> {
  using type = uint32_t;
  static constexpr float kFactor = 8 / 7.5f;
};

// Truncated floats, constrain.kernels.TruncatedFloat: the upper byte of a half.
struct Float8 {
  using Element = __half;
  using Pack = uint2;
  static constexpr int kBits = 8;
  static constexpr bool kHadamard = false;
  static constexpr float kFactor = 1.0f;

  static __device__ __forceinline__ int64_t bytes(int64_t states) { return states; }

  static __device__ __forceinline__ Pack load(const char* at, bool valid) { return load_once<Pack>(at, valid); }

  template <int kDim>
  static __device__ __forceinline__ Scales<kDim> load_scales(const char*, bool) {
    return {};
  }

  // Bytes become the upper bytes of halves.
  static __device__ __forceinline__ uint4 dequantize(const Pack& pack, uint32_t, int) {
    return make_uint4(__byte_perm(pack.x, 0, 0x1404), __byte_perm(pack.x, 0, 0x3424), __byte_perm(pack.y, 0, 0x1404),
                      __byte_perm(pack.y, 0, 0x3424));
  }

  static __device__ __forceinline__ void store(void* states, void*, int64_t first, float (&x)[8], bool valid) {
    if (!valid) return;
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const __half half = __float2half_rn(fminf(fmaxf(x[i], -65504.0f), 65504.0f));
      words[i / 4] |= uint32_t{__half_as_ushort(half)} >> 8 << i % 4 * 8;
    }
    *reinterpret_cast<uint2*>(static_cast<char*>(states) + first) = make_uint2(words[0], words[1]);
  }
};

// Scaled groups of integers, constrain.kernels.GroupQuantization.
template <int kCodeBits>
struct Grouped {
  using Element = __half;
  using Pack = typename CodePack<kCodeBits>::type;
  static constexpr int kBits = kCodeBits;
  static constexpr bool kHadamard = true;
  static constexpr float kFactor = CodePack<kCodeBits>::kFactor;

  static __device__ __forceinline__ int64_t bytes(int64_t states) { return states * kBits >> 3; }

  static __device__ __forceinline__ Pack load(const char* at, bool valid) { return load_once<Pack>(at, valid); }

  template <int kDim>
  static __device__ __forceinline__ Scales<kDim> load_scales(const char* at, bool valid) {
    return load_once<Scales<kDim>>(at, valid);
  }

  // `odd`: whether the second of the two scales holds.
  static __device__ __forceinline__ uint4 dequantize(const Pack& pack, uint32_t scales, int odd) {
    const __half2 scale = as_half2(__byte_perm(scales, 0, odd ? 0x3232 : 0x1010));
    uint4 x = decode_codes(pack);
    for (uint32_t* word : {&x.x, &x.y, &x.z, &x.w}) *word = as_word(__hmul2(as_half2(*word), scale));
    return x;
  }

  // The four lanes that hold a group must call this together.
  static __device__ __forceinline__ void store(void* states, void* scales, int64_t first, float (&x)[8], bool valid) {
    hadamard_group(x);
    const int lane = threadIdx.x % kWarp;
    const unsigned lanes = 0xfu << lane / 4 * 4;
    float most = 0;
#pragma unroll
    for (float each : x) most = fmaxf(most, fabsf(each));
    most = fmaxf(most, __shfl_xor_sync(lanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(lanes, most, 2));
    const __half scale = __float2half_rn(fminf(most, 65504.0f));
    if (!valid) return;
    constexpr float kHalfRange = ((1 << kBits) - 1) / 2.0f, kLeast = 1.17549435e-38f;
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float step = fminf(fmaxf(x[i] / fmaxf(__half2float(scale), kLeast), -1.0f), 1.0f);
      words[i * kBits / 32] |= static_cast<uint32_t>(rintf((step + 1) * kHalfRange)) << i * kBits % 32;
    }
    auto* to = static_cast<char*>(states) + bytes(first);
    if constexpr (kBits == 8)
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    else
      *reinterpret_cast<uint32_t*>(to) = words[0];
    if (lane % 4 == 0) static_cast<__half*>(scales)[first / kStateGroup] = scale;
  }
};

}  // namespace constrain::cuda
