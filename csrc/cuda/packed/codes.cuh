// Codes of a few bits to 16-bit floats, in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/packed/packed.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

template <typename T>
using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <typename T>
__device__ __forceinline__ uint32_t subtract2(uint32_t x, uint32_t y) {
  const Pair<T> z = __hsub2(reinterpret_cast<const Pair<T>&>(x), reinterpret_cast<const Pair<T>&>(y));
  return reinterpret_cast<const uint32_t&>(z);
}

template <typename T>
__device__ __forceinline__ uint32_t multiply2(uint32_t x, uint32_t y) {
  const Pair<T> z = __hmul2(reinterpret_cast<const Pair<T>&>(x), reinterpret_cast<const Pair<T>&>(y));
  return reinterpret_cast<const uint32_t&>(z);
}

// (x & mask) | y as one instruction; the compiler takes two where both are constants.
__device__ __forceinline__ uint32_t merge(uint32_t x, uint32_t mask, uint32_t y) {
  uint32_t z;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(z) : "r"(x), "r"(mask), "r"(y));
  return z;
}

// (x & mask) ^ y, likewise.
__device__ __forceinline__ uint32_t flip(uint32_t x, uint32_t mask, uint32_t y) {
  uint32_t z;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(z) : "r"(x), "r"(mask), "r"(y));
  return z;
}

// x where chosen, else y, without the branch that the compiler may make of it.
__device__ __forceinline__ float choose(bool chosen, float x, float y) {
  float z;
  asm("{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}"
      : "=f"(z)
      : "f"(x), "f"(y), "r"(static_cast<int>(chosen)));
  return z;
}

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, __half>;

// The number whose last bits are an integer's: 1024 as a half, 128 as a bfloat16. With the integer in these bits, it is
// the sum of both.
template <typename T>
constexpr int kCarrier = kIsHalf<T> ? 1024 : 128;
template <typename T>
constexpr uint32_t kCarrier2 = kIsHalf<T> ? 0x64006400u : 0x43004300u;

// One of the four words of 16 bytes; `i` is known when this is compiled.
__device__ __forceinline__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// A kind of codes has `operands<T>`: of the 16 bytes of a lane, which serve kSteps products of a tensor core, the
// operand of one. Element i of `a` is a pair of weights of row g (i even) or g + 8, of the first pair of inputs (i < 2)
// or the second. Weights of row g + 8 are `kTimes<T>` as large as they should be, for which their scales make up.
// Where `kCarries<T>`, operands hold more than the weights: `carried<T>` for the zero point of a row. With
// `kSubscales`, groups of 16 inputs have scales of their own, which `subscales<T>` brings to the form of `scale`.
//
// Codes of four bits have `tiny_operands<T>` too, which take fewer instructions: the weights times 2^-kTinyPower<T>,
// and those of row g + 8 also times `kTinyTimes`. What they hold in addition is the zero point alone.

// Nibbles of a word from the lowest: element 0 to 3 of the first of each pair, then of the second.
struct Int4Codes {
  static constexpr Codes kCodes = Codes::int4;
  static constexpr int kSteps = 4;
  static constexpr bool kSubscales = false;
  static constexpr int kMiddle = 8;
  template <typename T, bool kZeros>
  static constexpr bool kCarries = true;
  // The ten bits of a half's mantissa have room for the second nibble where it is.
  template <typename T>
  static constexpr int kTimes = kIsHalf<T> ? 16 : 1;

  template <typename T>
  static __device__ __forceinline__ float carried(int zero, int row) {
    return kCarrier<T> + zero * (row == 0 ? 1 : kTimes<T>);
  }

  template <typename T>
  static __device__ __forceinline__ void operands(const uint4& words, int step, const uint32_t (&)[2],
                                                  uint32_t (&a)[4]) {
    const uint32_t word = word_of(words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool high = i % 2 == 1 && kTimes<T> != 1;
      a[i] = merge(word >> 4 * (high ? i - 1 : i), high ? 0x00f000f0u : 0x000f000fu, kCarrier2<T>);
    }
  }

  // With nothing but an integer of eight bits, a T is that many of its least numbers: exponents 0 and 1 are the same.
  template <typename T>
  static constexpr int kTinyPower = kIsHalf<T> ? 24 : 133;
  static constexpr int kTinyTimes = 16;

  template <typename T>
  static __device__ __forceinline__ void tiny_operands(const uint4& words, int step, const uint32_t (&)[2],
                                                       uint32_t (&a)[4]) {
    const uint32_t word = word_of(words, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = (i < 2 ? word : word >> 8) & (i % 2 == 0 ? 0x000f000fu : 0x00f000f0u);
  }

  // The operand of a product of bytes over a quarter of the 16 bytes' two: the codes, those of row g + 8 times
  // kByteTimes. `byte_input` is the input of a byte among the four of a word.
  static constexpr int kByteTimes = 16;
  static __device__ constexpr int byte_input(int byte) { return byte == 1 ? 2 : byte == 2 ? 1 : byte; }

  static __device__ __forceinline__ void bytes(const uint4& words, int quarter, uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = word_of(words, quarter * 2 + i / 2) & (i % 2 == 0 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
  }
};

// Bytes of a word from the lowest: of rows g and g + 8 the first of a pair, of both rows the second. A word for each
// pair.
struct Int8Codes {
  static constexpr Codes kCodes = Codes::int8;
  static constexpr int kSteps = 2;
  static constexpr bool kSubscales = false;
  static constexpr int kMiddle = 128;
  template <typename T, bool kZeros>
  static constexpr bool kCarries = kIsHalf<T> || kZeros;
  template <typename T>
  static constexpr int kTimes = 1;

  template <typename T>
  static __device__ __forceinline__ float carried(int zero, int) {
    return zero + (kIsHalf<T> ? kCarrier<T> : -kMiddle);
  }

  // A bfloat16 has room for seven bits beside 128; the eighth decides whether 128 or 256 is subtracted.
  template <typename T>
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int row) {
    const uint32_t bytes = word >> 8 * row;
    if constexpr (kIsHalf<T>) return merge(bytes, 0x00ff00ffu, kCarrier2<T>);
    return subtract2<T>(merge(bytes, 0x007f007fu, kCarrier2<T>), flip(bytes, 0x00800080u, 0x43804380u));
  }

  template <typename T>
  static __device__ __forceinline__ void operands(const uint4& words, int step, const uint32_t (&)[2],
                                                  uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pair<T>(word_of(words, step * 2 + i / 2), i % 2);
  }
};

// Codes without zero points, all of whose weights are as large as they should be.
struct FloatCodes {
  static constexpr bool kSubscales = false;
  static constexpr int kMiddle = 0;
  template <typename T, bool kZeros>
  static constexpr bool kCarries = false;
  template <typename T>
  static constexpr int kTimes = 1;

  template <typename T>
  static __device__ __forceinline__ float carried(int, int) {
    return 0;
  }
};

// As integers of eight bits. Exponent and mantissa are moved to the places of those of T, subnormal numbers included;
// the product with a power of two makes up for the difference of the exponents' biases.
struct Float8Codes : FloatCodes {
  static constexpr Codes kCodes = Codes::float8;
  static constexpr int kSteps = 2;

  template <typename T>
  static __device__ __forceinline__ uint32_t pair(uint32_t word, int row) {
    constexpr int kShift = kIsHalf<T> ? 7 : 4;  // of the mantissa's end, from 0
    constexpr uint32_t kMagnitude = 0x007f007fu << kShift, kBias = kIsHalf<T> ? 0x5c005c00u : 0x7b807b80u;
    const uint32_t magnitude = (row == 0 ? word << kShift : word >> (8 - kShift)) & kMagnitude;
    return multiply2<T>(merge(row == 0 ? word << 8 : word, 0x80008000u, magnitude), kBias);
  }

  template <typename T>
  static __device__ __forceinline__ void operands(const uint4& words, int step, const uint32_t (&)[2],
                                                  uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pair<T>(word_of(words, step * 2 + i / 2), i % 2);
  }
};

// As integers of four bits, and to floats as those of eight bits are.
struct Float4Codes : FloatCodes {
  static constexpr Codes kCodes = Codes::float4;
  static constexpr int kSteps = 4;

  // A pair with the exponents' bias of T.
  template <typename T>
  static __device__ __forceinline__ uint32_t bits(uint32_t word, int i) {
    constexpr int kShift = kIsHalf<T> ? 9 : 6;
    constexpr uint32_t kMagnitude = 0x00070007u << kShift;
    const int places = kShift - 4 * i;
    const uint32_t magnitude = (places >= 0 ? word << places : word >> -places) & kMagnitude;
    return merge(word << (12 - 4 * i), 0x80008000u, magnitude);
  }

  template <typename T>
  static constexpr int kTinyPower = kIsHalf<T> ? 14 : 126;  // differences of the biases
  static constexpr int kTinyTimes = 1;

  template <typename T>
  static __device__ __forceinline__ void tiny_operands(const uint4& words, int step, const uint32_t (&)[2],
                                                       uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = bits<T>(word_of(words, step), i);
  }

  template <typename T>
  static __device__ __forceinline__ void operands(const uint4& words, int step, const uint32_t (&none)[2],
                                                  uint32_t (&a)[4]) {
    constexpr uint32_t kBias = kIsHalf<T> ? 0x74007400u : 0x7e807e80u;
    tiny_operands<T>(words, step, none, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = multiply2<T>(a[i], kBias);
  }
};

// As floats of four bits. Their scales take the place of the power of two, so that they cost no product of their own;
// divided by 512, neither they nor the weights leave the range of T. Code and scale have six bits between them, so the
// weights are exact.
struct ScaledFloat4Codes : Float4Codes {
  static constexpr Codes kCodes = Codes::scaled_float4;
  static constexpr bool kSubscales = true;

  // Scales of row g in the low byte and of row g + 8 in the high one.
  template <typename T>
  static __device__ __forceinline__ void subscales(uint32_t bytes, uint32_t (&scale)[2]) {
    constexpr int kShift = kIsHalf<T> ? 7 : 4;
    const uint32_t word = __byte_perm(bytes, 0, 0x4140);
    uint32_t both = (word << kShift & 0x007f007fu << kShift) | (word << 8 & 0x80008000u);
    both = multiply2<T>(both, kIsHalf<T> ? 0x70007000u : 0x7b807b80u);  // 2^13; of a bfloat16 2^120 and 2^117
    if constexpr (!kIsHalf<T>) both = multiply2<T>(both, 0x7a007a00u);
    scale[0] = __byte_perm(both, 0, 0x1010);
    scale[1] = __byte_perm(both, 0, 0x3232);
  }

  template <typename T>
  static __device__ __forceinline__ void operands(const uint4& words, int step, const uint32_t (&scale)[2],
                                                  uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = multiply2<T>(bits<T>(word_of(words, step), i), scale[i % 2]);
  }

  template <typename T>
  static constexpr int kTinyPower = 0;

  template <typename T>
  static __device__ __forceinline__ void tiny_operands(const uint4& words, int step, const uint32_t (&scale)[2],
                                                       uint32_t (&a)[4]) {
    operands<T>(words, step, scale, a);  // scales take the place of the power of two anyway
  }
};

// A kind of codes with the groups of a weight.
template <typename Kind, int kGroupInputs, bool kHasZeros>
struct Grouped : Kind {
  static constexpr int kGroup = kGroupInputs;
  static constexpr bool kZeros = kHasZeros;
};

// Calls `use` with a value of the kind of codes and groups, for the sake of its type.
template <typename Kind, typename Use>
void with_groups(const RecordShape& shape, Use&& use) {
  if constexpr (Kind::kSubscales) {
    use(Grouped<Kind, 128, false>{});
  } else {
    const bool small = shape.group == 32;
    if constexpr (Kind::kMiddle != 0) {
      if (shape.zeros) return small ? use(Grouped<Kind, 32, true>{}) : use(Grouped<Kind, 128, true>{});
    }
    return small ? use(Grouped<Kind, 32, false>{}) : use(Grouped<Kind, 128, false>{});
  }
}

// Calls `use` with a value of the kind of codes.
template <typename Use>
void with_codes(Codes codes, Use&& use) {
  switch (codes) {
    case Codes::int4:
      return use(Int4Codes{});
    case Codes::int8:
      return use(Int8Codes{});
    case Codes::float8:
      return use(Float8Codes{});
    case Codes::float4:
      return use(Float4Codes{});
    case Codes::scaled_float4:
      return use(ScaledFloat4Codes{});
  }
}

}  // namespace constrain::cuda
