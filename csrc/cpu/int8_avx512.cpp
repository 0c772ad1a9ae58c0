// Compiled for processors with AVX-512.
#include <immintrin.h>

#include "cpu/int8_tile.h"

namespace constrain::cpu {

namespace {

struct Avx512 {
  using Floats = __m512;
  static constexpr int kCount = 16;
  static constexpr int kMaxRows = 8;

  static Floats from_codes(const int8_t* codes) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  static Floats multiply_add(Floats weights, float x, Floats sum) {
    return _mm512_fmadd_ps(weights, _mm512_set1_ps(x), sum);
  }

  static Floats scaled(Floats sum, const float* scales) { return _mm512_mul_ps(sum, load(scales)); }
  static Floats load(const float* x) { return _mm512_loadu_ps(x); }
  static void store(float* out, Floats x) { _mm512_storeu_ps(out, x); }
};

}  // namespace

void avx512_blocks(const Int8Product& product, size_t begin, size_t end) { blocks<Avx512>(product, begin, end); }

}  // namespace constrain::cpu
