// The pages of a cache.
#pragma once

#include <cstdint>

namespace constrain::cuda {

// `keys` and `values` are (pages, page_size, kv_heads, head_dim) with the last dimension contiguous and these strides,
// which count states, however many bits each has: 16 for floats; 8 or 4 for codes, whose scales, one for every 32
// states, lie in the same order in arrays of their own. `block_table` (batch, blocks) int32 names the pages of a
// sequence in order.
struct PagesView {
  void* keys;
  void* values;
  void* key_scales;
  void* value_scales;
  int key_bits;
  int value_bits;
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
