// Tensor core products with operands loaded straight from global memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

namespace constrain::cuda {

// c += a @ b with float sums, for one warp: a is 16 x 16, b is 16 x 8. Lane 4 g + t holds of a the rows g and g + 8, of
// b and c the columns that PTX lays out for mma.m16n8k16.
template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                            const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c += a @ b with integer sums, for one warp: a is 16 x 32 unsigned bytes, b is 32 x 8 signed ones.
__device__ __forceinline__ void multiply_add_bytes(int (&c)[4], const uint32_t (&a)[4], const uint2& b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

// c += rows @ columns over 32 elements of the inner dimension. Lane 4 g + t passes the 16 bytes at 8 t of row g, of row
// g + 8, and of column g. The instruction expects other elements of the inner dimension in each lane. Since both
// operands are permuted alike, the sum is the same, and no shuffles between lanes are needed.
template <typename T>
__device__ __forceinline__ void multiply_add_packs(float (&c)[4], const uint4& row, const uint4& row8,
                                                   const uint4& column) {
  multiply_add<T>(c, {row.x, row8.x, row.y, row8.y}, {column.x, column.y});
  multiply_add<T>(c, {row.z, row8.z, row.w, row8.w}, {column.z, column.w});
}

// Loads 4, 8 or 16 bytes that are read once, without allocation in the L1 cache, and with a prefetch of their line, but
// no other, into the L2 cache; the neighbouring line would cost a tenth of the bandwidth. Zero where not `valid`.
template <typename Pack>
__device__ __forceinline__ Pack load_once(const void* pointer, bool valid) {
  static_assert(sizeof(Pack) == 4 || sizeof(Pack) == 8 || sizeof(Pack) == 16);
  uint32_t words[4] = {};
  if constexpr (sizeof(Pack) == 16) {
    asm volatile(
        "{\n"
        " .reg .pred p;\n"
        " setp.ne.b32 p, %5, 0;\n"
        " @p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}\n"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(pointer), "r"(static_cast<int>(valid))
        : "memory");
  } else if constexpr (sizeof(Pack) == 8) {
    asm volatile(
        "{\n"
        " .reg .pred p;\n"
        " setp.ne.b32 p, %3, 0;\n"
        " @p ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];\n"
        "}\n"
        : "+r"(words[0]), "+r"(words[1])
        : "l"(pointer), "r"(static_cast<int>(valid))
        : "memory");
  } else {
    asm volatile(
        "{\n"
        " .reg .pred p;\n"
        " setp.ne.b32 p, %2, 0;\n"
        " @p ld.global.L1::no_allocate.L2::128B.u32 %0, [%1];\n"
        "}\n"
        : "+r"(words[0])
        : "l"(pointer), "r"(static_cast<int>(valid))
        : "memory");
  }
  Pack pack;
  memcpy(&pack, words, sizeof(Pack));
  return pack;
}

}  // namespace constrain::cuda
