// Input and output of attention: queries, new keys and values, and outputs.
#pragma once

#include <cstdint>

#include "cuda/attention_launch.cuh"
#include "cuda/kv_formats.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

// A row is a query of a head of the block's group.
struct Row {
  int query, head;
  bool valid;
};

// The keys that a row sees, the last excluded.
struct Range {
  int begin, end;
};

__device__ __forceinline__ Row make_row(const PagedAttention& p, int kv_head, int index) {
  const int heads = p.heads / p.pages.kv_heads;
  return {index / heads, kv_head * heads + index % heads, index < heads * p.queries};
}

// Rows of the block that begins with this one.
__device__ __forceinline__ int rows_of(const PagedAttention& p, int first_row) {
  return min(kAttentionRows, p.heads / p.pages.kv_heads * p.queries - first_row);
}

__device__ __forceinline__ Range seen_by(const PagedAttention& p, const Row& row, int length) {
  const int end = row.valid ? length - p.queries + row.query + 1 : 0;
  return {p.window > 0 ? max(0, end - p.window) : 0, end};
}

// Prefetches a tile into the L2 cache. Unlike a load, this is allowed while the preceding kernel may still write.
template <int kBits>
__device__ __forceinline__ void prefetch_tile(const PagesView& pages, const void* states, int64_t offset) {
  constexpr int kLine = 128 * 8 / kBits;  // states
  const int lines = (pages.head_dim + kLine - 1) / kLine;
  for (int i = threadIdx.x % kWarp; i < kAttentionKeys * lines; i += kWarp) {
    const int64_t first = offset + i / lines * pages.slot_stride + i % lines * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(states) + first * kBits / 8));
  }
}

// Prefetches the angles of the new positions.
template <typename T>
__device__ __forceinline__ void prefetch_angles(const PagedAttention& p, int length) {
  constexpr int kLine = 128 / sizeof(T);
  const int lines = (p.rotary_dim + kLine - 1) / kLine;
  for (int i = threadIdx.x; i < p.queries * lines; i += blockDim.x) {
    const int64_t first = int64_t{max(length - 1 - i / lines, 0)} * p.rotary_dim + i % lines * kLine;
    for (const void* angles : {p.cos, p.sin})
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const T*>(angles) + first));
  }
}

// Loads eight features of a head, from `at` on, rotated to a position unless that is negative.
template <typename T>
__device__ __forceinline__ void load_features(const PagedAttention& p, const T* head, int at, int position,
                                              float (&x)[8]) {
  unpack8<T>(*reinterpret_cast<const uint4*>(head + at), x);
  if (position < 0 || at >= p.rotary_dim) return;
  const int64_t angle = int64_t{position} * p.rotary_dim + at;
  const int half = p.rotary_dim / 2;
  float partner[8], cos[8], sin[8];
  unpack8<T>(*reinterpret_cast<const uint4*>(head + (at < half ? at + half : at - half)), partner);
  unpack8<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(p.cos) + angle), cos);
  unpack8<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(p.sin) + angle), sin);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = to_float(from_float<T>(x[i] * cos[i] + partner[i] * sin[i]));
}

template <typename T>
__device__ __forceinline__ const T* head_of(const PagedAttention& p, int query, int head) {
  const int64_t token = int64_t{blockIdx.z} * p.queries + query;
  return static_cast<const T*>(p.qkv) + (token * (p.heads + 2 * p.pages.kv_heads) + head) * p.pages.head_dim;
}

// Loads the queries of a block into shared memory, rotated to their positions, and multiplied by the Hadamard matrix if
// the keys are.
template <typename T, typename Keys, int kDim, typename Element, int kStride>
__device__ __forceinline__ void load_queries(const PagedAttention& p, int kv_head, int first_row, int length,
                                             Element (&queries)[kAttentionRows][kStride]) {
  constexpr int kPacks = kDim / 8;
  for (int i = threadIdx.x; i < kAttentionRows * kPacks; i += blockDim.x) {
    const int at = i % kPacks * 8;
    const Row row = make_row(p, kv_head, first_row + i / kPacks);
    const int position = length - p.queries + row.query;
    float x[8] = {};
    if (row.valid && position >= 0 && at < p.pages.head_dim)
      load_features(p, head_of<T>(p, row.query, row.head), at, position, x);
    if constexpr (Keys::kHadamard) hadamard_group(x);
    *reinterpret_cast<uint4*>(&queries[i / kPacks][at]) = pack8<Element>(x);
  }
}

// Writes the new keys and values of a head at positions from `begin` to `end`. Blocks with other rows of the same head
// write the same values, so that none has to wait for another.
template <typename T, typename Keys, typename Values, int kDim>
__device__ __forceinline__ void store_new_states(const PagedAttention& p, int kv_head, int length, int begin, int end) {
  constexpr int kPacks = kDim / 8;
  const PagesView& pages = p.pages;
  const int old = length - p.queries;
  if (end <= old) return;
  for (int i = threadIdx.x; i < 2 * p.queries * kPacks; i += blockDim.x) {
    const int query = i / (2 * kPacks), position = old + query, at = i % kPacks * 8;
    const bool is_value = i / kPacks % 2 != 0;
    const bool mine = position >= max(begin, 0) && position < end && at < pages.head_dim;
    float x[8] = {};
    int64_t first = 0;
    if (mine) {
      const int64_t page = pages.block_table[blockIdx.z * pages.block_table_stride + position / pages.page_size];
      first = page * pages.page_stride + position % pages.page_size * pages.slot_stride + kv_head * pages.head_stride;
      const int head = p.heads + kv_head + (is_value ? pages.kv_heads : 0);
      load_features(p, head_of<T>(p, query, head), at, is_value ? -1 : position, x);
    }
    if (is_value)
      Values::store(pages.values, pages.value_scales, first + at, x, mine);
    else
      Keys::store(pages.keys, pages.key_scales, first + at, x, mine);
  }
}

// Writes four features of a row, from `at` on. The eight lanes that hold a group must call this together.
template <typename T, typename Values>
__device__ __forceinline__ void write_output(const PagedAttention& p, int batch, const Row& row, int at,
                                             const float4& value) {
  float x[4] = {value.x, value.y, value.z, value.w};
  if constexpr (Values::kHadamard) hadamard_group(x);
  T* out =
      static_cast<T*>(p.out) + ((int64_t{batch} * p.queries + row.query) * p.heads + row.head) * p.pages.head_dim + at;
  constexpr float kFactor = Values::kFactor;
  if (at < p.pages.head_dim)
    *reinterpret_cast<uint2*>(out) = {pack2<T>(x[0] * kFactor, x[1] * kFactor),
                                      pack2<T>(x[2] * kFactor, x[3] * kFactor)};
}

}  // namespace constrain::cuda
