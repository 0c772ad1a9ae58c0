// Attention of single tokens over keys and values in pages, in float32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace constrain::cpu {

/// Attention of `tokens` tokens, each over the positions of its sequence up to its own.
///
/// Head `h` reads the keys and values of head `h / (heads / kv_heads)`. The output of a token depends neither on the
/// other tokens nor on the size of pages.
struct PagedAttention {
  const float* qkv;             ///< `[tokens, heads + 2 * kv_heads, dim]`
  float* queries;               ///< `[tokens, heads, dim]`, scratch memory for rotated queries
  float* keys;                  ///< `[pages, page_size, kv_heads, dim]`
  float* values;                ///< `[pages, page_size, kv_heads, dim]`
  float* out;                   ///< `[tokens, heads, dim]`
  const float* cos;             ///< `[positions, rotary_dim]`, each half alike
  const float* sin;             ///< `[positions, rotary_dim]`, the first half negated
  const int32_t* block_tables;  ///< `[tokens, table_width]`, the pages of each sequence
  const int32_t* lengths;       ///< `[tokens]`, positions of each sequence up to the token; 0: the output is zero
  size_t tokens, heads, kv_heads, dim, rotary_dim, page_size, table_width;
  size_t window;  ///< number of positions that a token attends to at most
  float scale;    ///< factor of the scores
};

/// `dim` is a multiple of this.
constexpr size_t kHeadMultiple = 8;

/// Rotates queries and keys, and stores keys and values in their pages.
void store_states(const PagedAttention& attention);

/// After that: attends with some pairs of a token and a head of keys, `begin` to `end`, of which the heads count
/// faster. Needs AVX2 and FMA; with wider vectors it was no faster, as it is bound by the reading of keys and values.
void avx2_attention(const PagedAttention& attention, size_t begin, size_t end);

}  // namespace constrain::cpu
