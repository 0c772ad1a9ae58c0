// Compiled for processors with AVX2 and FMA; no inline function of the standard library is used.
#include <immintrin.h>

#include "cpu/attention.h"

namespace constrain::cpu {

namespace {

constexpr size_t kLanes = 8;
/// Number of keys whose scores are held at a time.
constexpr size_t kKeys = 64;
/// Number of keys that are fetched ahead, and of floats in a cache line.
constexpr size_t kAhead = 8, kLine = 16;
constexpr float kLeast = -3.0e38f;

float sum_of(__m256 x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

/// `exp(x)` for `x <= 0`, zero below -87: a power of two times the Taylor polynomial of the rest.
__m256 exponential(__m256 x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kTerms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  const __m256 is_normal = _mm256_cmp_ps(x, _mm256_set1_ps(-87), _CMP_GE_OQ);
  const __m256i power = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)));
  const __m256 count = _mm256_cvtepi32_ps(power);
  __m256 rest = _mm256_fnmadd_ps(count, _mm256_set1_ps(kLn2High), x);
  rest = _mm256_fnmadd_ps(count, _mm256_set1_ps(kLn2Low), rest);
  __m256 sum = _mm256_set1_ps(1.0f / 5040);
  for (const float term : kTerms) sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(term));
  const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(sum), _mm256_slli_epi32(power, 23));
  return _mm256_and_ps(_mm256_castsi256_ps(scaled), is_normal);
}

/// The places of keys and values of consecutive positions of a sequence, in floats from the first.
class Places {
 public:
  Places(const PagedAttention& attention, size_t token, size_t kv_head, size_t position)
      : page_(attention.block_tables + token * attention.table_width + position / attention.page_size),
        slot_(position % attention.page_size),
        size_(attention.page_size),
        row_(attention.kv_heads * attention.dim),
        head_(kv_head * attention.dim) {}

  size_t next() {
    if (slot_ == size_) slot_ = 0, ++page_;
    return (static_cast<size_t>(*page_) * size_ + slot_++) * row_ + head_;
  }

 private:
  const int32_t* page_;
  size_t slot_, size_, row_, head_;
};

/// Queries of `Heads` heads over one head of keys, by blocks of keys: the sums of earlier blocks are scaled down to the
/// largest score so far (online softmax, Milakov and Gimelshein 2018).
template <int Heads>
struct Tile {
  const PagedAttention& attention;
  const float* queries;
  float* out;
  float largest[Heads], total[Heads], factors[Heads];
  float weights[Heads][kKeys];
  size_t places[kKeys];

  void prefetch(const float* row) const {
    for (size_t d = 0; d < attention.dim; d += kLine) _mm_prefetch(row + d, _MM_HINT_T0);
  }

  void score(size_t count) {
    for (size_t j = 0; j < count; ++j) {
      // Rows of one head are too far apart for the processor to foresee.
      if (j + kAhead < count) prefetch(attention.keys + places[j + kAhead]);
      prefetch(attention.values + places[j]);
      __m256 sums[Heads] = {};
      for (size_t d = 0; d < attention.dim; d += kLanes) {
        const __m256 key = _mm256_loadu_ps(attention.keys + places[j] + d);
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) {
          sums[h] = _mm256_fmadd_ps(_mm256_loadu_ps(queries + h * attention.dim + d), key, sums[h]);
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) weights[h][j] = sum_of(sums[h]) * attention.scale;
    }
    for (int h = 0; h < Heads; ++h) {
      for (size_t j = count; j % kLanes != 0; ++j) weights[h][j] = kLeast;
    }
  }

  /// Turns the scores of a head into weights, and finds the factor of the sums of earlier blocks.
  void weigh(int h, size_t count) {
    __m256 most = _mm256_set1_ps(largest[h]);
    for (size_t j = 0; j < count; j += kLanes) most = _mm256_max_ps(most, _mm256_loadu_ps(weights[h] + j));
    float lanes[kLanes], before = largest[h];
    _mm256_storeu_ps(lanes, most);
    for (const float each : lanes) largest[h] = each > largest[h] ? each : largest[h];
    __m256 sum = {};
    for (size_t j = 0; j < count; j += kLanes) {
      const __m256 shifted = _mm256_sub_ps(_mm256_loadu_ps(weights[h] + j), _mm256_set1_ps(largest[h]));
      const __m256 weight = exponential(shifted);
      _mm256_storeu_ps(weights[h] + j, weight);
      sum = _mm256_add_ps(sum, weight);
    }
    factors[h] = _mm256_cvtss_f32(exponential(_mm256_set1_ps(before - largest[h])));
    total[h] = total[h] * factors[h] + sum_of(sum);
  }

  /// Adds weighted values to `Vectors` vectors of the outputs from feature `d` on.
  template <int Vectors>
  void add_values(size_t count, size_t d) {
    __m256 sums[Heads][Vectors];
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const __m256 before = _mm256_loadu_ps(out + h * attention.dim + d + v * kLanes);
        sums[h][v] = _mm256_mul_ps(before, _mm256_set1_ps(factors[h]));
      }
    }
    for (size_t j = 0; j < count; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const __m256 value = _mm256_loadu_ps(attention.values + places[j] + d + v * kLanes);
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) sums[h][v] = _mm256_fmadd_ps(value, _mm256_set1_ps(weights[h][j]), sums[h][v]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) _mm256_storeu_ps(out + h * attention.dim + d + v * kLanes, sums[h][v]);
    }
  }

  void compute(size_t token, size_t kv_head) {
    const size_t dim = attention.dim, length = static_cast<size_t>(attention.lengths[token]);
    for (size_t d = 0; d < Heads * dim; ++d) out[d] = 0;
    for (int h = 0; h < Heads; ++h) largest[h] = kLeast, total[h] = 0;
    size_t position = length > attention.window ? length - attention.window : 0;
    Places next(attention, token, kv_head, position);
    for (size_t count; position < length; position += count) {
      count = length - position < kKeys ? length - position : kKeys;
      for (size_t j = 0; j < count; ++j) places[j] = next.next();
      score(count);
      for (int h = 0; h < Heads; ++h) weigh(h, count);
      size_t d = 0;
      for (; d + 4 * kLanes <= dim; d += 4 * kLanes) add_values<4>(count, d);
      for (; d < dim; d += kLanes) add_values<1>(count, d);
    }
    for (int h = 0; h < Heads && length > 0; ++h) {
      for (size_t d = 0; d < dim; ++d) out[h * dim + d] /= total[h];
    }
  }
};

/// Attends with the query heads from `head` to `end`, which read one head of keys, `Heads` at a time.
template <int Heads>
void attend(const PagedAttention& attention, size_t token, size_t kv_head, size_t head, size_t end) {
  for (; head + Heads <= end; head += Heads) {
    const size_t place = (token * attention.heads + head) * attention.dim;
    Tile<Heads>{attention, attention.queries + place, attention.out + place}.compute(token, kv_head);
  }
  if constexpr (Heads > 1) attend<Heads / 2>(attention, token, kv_head, head, end);
}

}  // namespace

void avx2_attention(const PagedAttention& attention, size_t begin, size_t end) {
  const size_t group = attention.heads / attention.kv_heads;
  for (size_t pair = begin; pair < end; ++pair) {
    const size_t token = pair / attention.kv_heads, kv_head = pair % attention.kv_heads;
    attend<2>(attention, token, kv_head, kv_head * group, (kv_head + 1) * group);
  }
}

}  // namespace constrain::cpu
