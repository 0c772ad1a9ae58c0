#include "cpu/grouped_product.h"

namespace constrain::cpu {

GroupedBlocks grouped_blocks() {
  if (__builtin_cpu_supports("avx512f")) return avx512_grouped;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    return avx2_grouped;
  }
  return nullptr;
}

size_t group_words(const Group& group) {
  const int bits = group.codes > 100 ? group.codes - 100 : group.codes;
  if (bits < 2 || bits > 8 || bits == 7 || group.inputs < 1) return 0;
  if ((group.codes > 100) && bits != 4 && bits != 8) return 0;
  const size_t total = static_cast<size_t>(group.inputs) * static_cast<size_t>(bits);
  return total % 32 == 0 ? total / 32 : 0;
}

void sum_groups(const GroupedProduct& product, float* sums) {
  const float* x = product.x;
  for (size_t row = 0; row < product.rows; ++row) {
    for (size_t g = 0; g < product.group_count; ++g) {
      float sum = 0;
      for (int32_t i = 0; i < product.groups[g].inputs; ++i) sum += *x++;
      *sums++ = sum;
    }
  }
}

}  // namespace constrain::cpu
