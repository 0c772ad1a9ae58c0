// Compiled for processors with AVX2, FMA and F16C.
#include <immintrin.h>

#include "cpu/grouped_tile.h"

namespace constrain::cpu {

namespace {

struct Avx2 {
  using Floats = __m256;
  using Words = __m256i;
  static constexpr int kCount = 8;
  static constexpr int kMaxRows = 3;  // whose sums leave four of the 16 registers
  static constexpr int kFewRows = 1;

  static Words load(const uint32_t* words) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)); }
  template <int Count>
  static Words right(Words words) {
    return Count == 0 ? words : _mm256_srli_epi32(words, Count);
  }
  template <int Count>
  static Words left(Words words) {
    return _mm256_slli_epi32(words, Count);
  }
  static Words either(Words a, Words b) { return _mm256_or_si256(a, b); }

  template <int Bits>
  static Floats signed_codes(Words words) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 32 - Bits), 32 - Bits));
  }
  // A permutation of 8 floats reads three bits of every lane, and the fourth is the sign.
  static Floats float4_codes(Words words) {
    const Floats magnitude = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), words);
    const Words sign = _mm256_and_si256(_mm256_slli_epi32(words, 28), _mm256_set1_epi32(INT32_MIN));
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
  }
  // The exponent and mantissa as those of a float16, whose exponent has one bit more and another bias.
  static Floats float8_codes(Words words) {
    const Words sign = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0x80)), 8);
    const Words rest = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(0x7f)), 7);
    const Words halves = _mm256_or_si256(sign, rest);
    const __m128i low = _mm256_castsi256_si128(halves), high = _mm256_extracti128_si256(halves, 1);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_packus_epi32(low, high)), _mm256_set1_ps(256));
  }

  static Floats same(float x) { return _mm256_set1_ps(x); }
  static Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
  static Floats multiply_subtract(Floats a, Floats b, Floats sum) { return _mm256_fnmadd_ps(a, b, sum); }
  static void store(float* out, Floats x) { _mm256_storeu_ps(out, x); }

  static Floats from_float32(const float* x) { return _mm256_loadu_ps(x); }
  static Floats from_float16(const uint16_t* x) { return _mm256_cvtph_ps(halves(x)); }
  static Floats from_bfloat16(const uint16_t* x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(x)), 16));
  }
  static Floats from_float8(const uint8_t* x) { return float8_codes(_mm256_cvtepu8_epi32(bytes(x))); }
  static Floats from_int8(const int8_t* x) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(x))); }

  static __m128i halves(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }
  static __m128i bytes(const void* x) { return _mm_loadl_epi64(static_cast<const __m128i*>(x)); }
};

}  // namespace

void avx2_grouped(const GroupedProduct& product, size_t begin, size_t end) { grouped<Avx2>(product, begin, end); }

}  // namespace constrain::cpu
