#include "cpu/attention.h"

#include <algorithm>

namespace constrain::cpu {

namespace {

/// Rotates the features below `rotary` of some heads, and copies the others.
void rotate(const float* x, float* out, size_t heads, size_t dim, size_t rotary, const float* cos, const float* sin) {
  const size_t half = rotary / 2;
  for (size_t head = 0; head < heads; ++head, x += dim, out += dim) {
    for (size_t i = 0; i < half; ++i) {
      out[i] = x[i] * cos[i] + x[i + half] * sin[i];
      out[i + half] = x[i + half] * cos[i + half] + x[i] * sin[i + half];
    }
    std::copy(x + rotary, x + dim, out + rotary);
  }
}

}  // namespace

void store_states(const PagedAttention& attention) {
  const size_t dim = attention.dim, rotary = attention.rotary_dim, size = attention.page_size;
  const size_t heads = attention.heads, kv_heads = attention.kv_heads;
  for (size_t token = 0; token < attention.tokens; ++token) {
    if (attention.lengths[token] == 0) continue;
    const size_t position = static_cast<size_t>(attention.lengths[token]) - 1;
    const int32_t page = attention.block_tables[token * attention.table_width + position / size];
    const size_t slot = (static_cast<size_t>(page) * size + position % size) * kv_heads * dim;
    const float *cos = attention.cos + position * rotary, *sin = attention.sin + position * rotary;
    const float* states = attention.qkv + token * (heads + 2 * kv_heads) * dim;
    rotate(states, attention.queries + token * heads * dim, heads, dim, rotary, cos, sin);
    rotate(states + heads * dim, attention.keys + slot, kv_heads, dim, rotary, cos, sin);
    std::copy_n(states + (heads + kv_heads) * dim, kv_heads * dim, attention.values + slot);
  }
}

}  // namespace constrain::cpu
