// Compiled for processors with AVX-512.
#include <immintrin.h>

#include "cpu/grouped_tile.h"

namespace constrain::cpu {

namespace {

struct Avx512 {
  using Floats = __m512;
  using Words = __m512i;
  static constexpr int kCount = 16;
  static constexpr int kMaxRows = 8;
  static constexpr int kFewRows = 3;

  static Words load(const uint32_t* words) { return _mm512_loadu_si512(words); }
  template <int Count>
  static Words right(Words words) {
    return Count == 0 ? words : _mm512_srli_epi32(words, Count);
  }
  template <int Count>
  static Words left(Words words) {
    return _mm512_slli_epi32(words, Count);
  }
  static Words either(Words a, Words b) { return _mm512_or_si512(a, b); }

  // A permutation of 16 floats reads four bits of every lane.
  template <int Bits>
  static Floats signed_codes(Words words) {
    if constexpr (Bits == 4) {
      return _mm512_permutexvar_ps(words, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    } else if constexpr (Bits == 3) {
      return _mm512_permutexvar_ps(words, _mm512_setr_ps(0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1));
    } else if constexpr (Bits == 2) {
      return _mm512_permutexvar_ps(words, _mm512_setr_ps(0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1));
    } else {
      return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 32 - Bits), 32 - Bits));
    }
  }
  static Floats float4_codes(Words words) {
    return _mm512_permutexvar_ps(words,
                                 _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6));
  }
  // The exponent and mantissa as those of a float16, whose exponent has one bit more and another bias.
  static Floats float8_codes(Words words) {
    const Words sign = _mm512_slli_epi32(_mm512_and_si512(words, _mm512_set1_epi32(0x80)), 8);
    const Words rest = _mm512_slli_epi32(_mm512_and_si512(words, _mm512_set1_epi32(0x7f)), 7);
    const __m256i halves = _mm512_cvtepi32_epi16(_mm512_or_si512(sign, rest));
    return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256));
  }

  static Floats same(float x) { return _mm512_set1_ps(x); }
  static Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
  static Floats multiply_subtract(Floats a, Floats b, Floats sum) { return _mm512_fnmadd_ps(a, b, sum); }
  static void store(float* out, Floats x) { _mm512_storeu_ps(out, x); }

  static Floats from_float32(const float* x) { return _mm512_loadu_ps(x); }
  static Floats from_float16(const uint16_t* x) { return _mm512_cvtph_ps(halves(x)); }
  static Floats from_bfloat16(const uint16_t* x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(x)), 16));
  }
  static Floats from_float8(const uint8_t* x) { return float8_codes(_mm512_cvtepu8_epi32(bytes(x))); }
  static Floats from_int8(const int8_t* x) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(x))); }

  static __m256i halves(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }
  static __m128i bytes(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }
};

}  // namespace

void avx512_grouped(const GroupedProduct& product, size_t begin, size_t end) { grouped<Avx512>(product, begin, end); }

}  // namespace constrain::cpu
