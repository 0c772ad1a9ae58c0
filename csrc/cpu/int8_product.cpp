#include "cpu/int8_product.h"

namespace constrain::cpu {

BlockProduct block_product() {
  if (__builtin_cpu_supports("avx512f")) return avx512_blocks;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_blocks;
  return nullptr;
}

}  // namespace constrain::cpu
