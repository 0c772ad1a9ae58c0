// Products of tensor cores that the four warps of a warpgroup share (compute capability 9.0a, and no other).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace constrain::cuda {

constexpr int kWarpgroupWarps = 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONSTRAIN_HAS_WARPGROUPS 1
#else
#define CONSTRAIN_HAS_WARPGROUPS 0
#endif

// Products read registers and shared memory, and write registers, at their own time: what they use must have been
// written before `begin_products`, and nothing of it may change before `wait_for_products` says that they have ended.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until all but the last `kLeft` groups, each of which `end_products` has ended, are done.
template <int kLeft>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Lets products that begin after a barrier see what this thread has written to shared memory.
__device__ __forceinline__ void publish_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Describes columns in shared memory to a product: blocks of eight columns, of which each has 16 bytes, one after the
// other. Blocks are `inner_step` bytes apart along the inner dimension, and `column_step` along the columns. A
// sixteenth of a number of bytes can be added to a description. Addresses beyond those of a block name it within its
// cluster.
__device__ __forceinline__ uint64_t describe_columns(uint32_t address, int inner_step, int column_step) {
  constexpr uint32_t kInBlock = (1 << 18) - 1;
  return uint64_t{(address & kInBlock) >> 4} | static_cast<uint64_t>(inner_step >> 4) << 16 |
         static_cast<uint64_t>(column_step >> 4) << 32;
}

#define CONSTRAIN_PRODUCT_OF(type)                                                                                    \
  asm volatile(                                                                                                       \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                                     \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, adds, 1, " \
      "1, 0;\n}"                                                                                                      \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),      \
        "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),      \
        "+f"(c[3][2]), "+f"(c[3][3])                                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)))

// c = a @ b, or c += a @ b where it `adds`, with float sums: a is 64 x 16, and b, which `describe_columns` describes,
// 16 x 32. A warp has 16 rows of a and c, laid out as for `multiply_add`, and all columns, eight to each element of c.
template <typename T>
__device__ __forceinline__ void multiply_by_warpgroup(float (&c)[4][4], const uint32_t (&a)[4], uint64_t b, bool adds) {
#if CONSTRAIN_HAS_WARPGROUPS
  if constexpr (std::is_same_v<T, __half>)
    CONSTRAIN_PRODUCT_OF("f16");
  else
    CONSTRAIN_PRODUCT_OF("bf16");
#endif
}

#undef CONSTRAIN_PRODUCT_OF

}  // namespace constrain::cuda
