// Compiled for processors with AVX2 and FMA.
#include <immintrin.h>

#include "cpu/int8_tile.h"

namespace constrain::cpu {

namespace {

struct Avx2 {
  using Floats = __m256;
  static constexpr int kCount = 8;
  static constexpr int kMaxRows = 3;  // whose sums leave four of the 16 registers

  static Floats from_codes(const int8_t* codes) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  static Floats multiply_add(Floats weights, float x, Floats sum) {
    return _mm256_fmadd_ps(weights, _mm256_set1_ps(x), sum);
  }

  static Floats scaled(Floats sum, const float* scales) { return _mm256_mul_ps(sum, load(scales)); }
  static Floats load(const float* x) { return _mm256_loadu_ps(x); }
  static void store(float* out, Floats x) { _mm256_storeu_ps(out, x); }
};

}  // namespace

void avx2_blocks(const Int8Product& product, size_t begin, size_t end) { blocks<Avx2>(product, begin, end); }

}  // namespace constrain::cpu
