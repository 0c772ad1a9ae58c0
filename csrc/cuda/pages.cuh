// The pages of a KV cache.
#pragma once

#include <cstdint>

namespace constrain::cuda {

// Storage of states: 16-bit floats, the upper bytes of halves, or integers of 8 or 4 bits with a scale for every 32 of
// them.
enum class KVFormat { plain, float8, group8, group4 };

// `keys` and `values` are (pages, page_size, kv_heads, head_dim) with the last dimension contiguous. Strides count
// states, whatever their size. Scales lie in the same order in arrays of their own. `block_table` (batch, blocks) int32
// has the pages of each sequence in order.
struct PagesView {
  void* keys;
  void* values;
  void* key_scales;
  void* value_scales;
  KVFormat key_format;
  KVFormat value_format;
  int64_t page_stride;
  int64_t slot_stride;
  int64_t head_stride;
  const int32_t* block_table;
  int64_t block_table_stride;
  int page_size;
  int kv_heads;
  int head_dim;
};

}  // namespace constrain::cuda
