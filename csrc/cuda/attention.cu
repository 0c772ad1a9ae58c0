#include <algorithm>
#include <cmath>

#include "cuda/attention.cuh"
#include "cuda/launch.cuh"
#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "paged_attention";
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = 16;  // rows of a block: heads of one group, times queries
constexpr int kKeys = 16;  // keys of a tile, which lies within one page
constexpr int kMaxSplits = 128;
// A split has at least this many tiles: to join splits takes as long as a warp takes for some six tiles.
constexpr int kLeastTiles = 6 * kWarps;

// Blocks of a multiprocessor that the registers allow.
template <int kDim>
constexpr int kResident = kDim <= 128 ? 3 : 2;
constexpr float kLog2e = 1.4426950408889634f;

// Softmax over a part of the keys of one row: the sum of exp2(score - top), and top.
struct Softmax {
  float top = -INFINITY;
  float sum = 0;
};

// What the scores that were relative to `top` have to be multiplied with to be relative to `new_top`.
__device__ __forceinline__ float rescale(float top, float new_top) {
  return top == -INFINITY ? 0.0f : exp2f(top - new_top);
}

// A row is a query of a head of the block's group.
struct Row {
  int query, head;
  bool valid;
};

// The keys that a row sees, the last excluded.
struct Range {
  int begin, end;
};

struct Launch {
  PagedAttention p;
  float* partials;
  int32_t* counters;
  int row_blocks;
};

__device__ __forceinline__ Row make_row(const PagedAttention& p, int kv_head, int index) {
  const int heads = p.heads / p.pages.kv_heads;
  return {index / heads, kv_head * heads + index % heads, index < heads * p.queries};
}

__device__ __forceinline__ Range seen_by(const PagedAttention& p, const Row& row, int length) {
  const int end = row.valid ? length - p.queries + row.query + 1 : 0;
  return {p.window > 0 ? max(0, end - p.window) : 0, end};
}

__device__ __forceinline__ void add_scaled(float4& sum, float factor, const float4& x) {
  sum.x += factor * x.x;
  sum.y += factor * x.y;
  sum.z += factor * x.z;
  sum.w += factor * x.w;
}

// Keys of a tile as rows of the product with the queries: packs at 32 c + 8 member of keys group and group + 8.
template <int kDim>
struct KeyTile {
  uint4 pack[2][kDim / 32];
};

// Values of a tile: packs at 64 j + 8 group of keys 2 member, 2 member + 1, and 8 more of each.
template <int kDim>
struct ValueTile {
  uint4 pack[4][kDim / 64];
};

template <typename T>
__device__ __forceinline__ uint32_t pair_of(const uint4& a, const uint4& b, int element) {
  const uint32_t words_a[4] = {a.x, a.y, a.z, a.w}, words_b[4] = {b.x, b.y, b.z, b.w};
  return __byte_perm(words_a[element / 2], words_b[element / 2], element % 2 ? 0x7632 : 0x5410);
}

// One block attends with one block of rows to one split of the keys. Each warp takes every fourth tile, in the layout
// of FlashAttention-2 (Dao 2023): the scores of a product are, lane by lane, the left operand of the next. The warps
// are joined in shared memory, and the splits (Dao et al. 2023, Flash-Decoding) by the block that ends last.
template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads, kResident<kDim>) attend(Launch a) {
  // The padding spreads the lanes of a load over all banks.
  __shared__ alignas(16) T queries[kRows][kDim + 32];
  extern __shared__ float outputs[];  // [kWarps][kRows][kDim]
  __shared__ Softmax parts[kWarps][kRows];
  __shared__ bool is_last;
  const PagedAttention& p = a.p;
  const PagesView& pages = p.pages;
  const int splits = gridDim.x, split = blockIdx.x, batch = blockIdx.z;
  const int kv_head = blockIdx.y / a.row_blocks, first_row = blockIdx.y % a.row_blocks * kRows;
  const int warp = threadIdx.x / kWarp, group = threadIdx.x % kWarp / 4, member = threadIdx.x % 4;
  const int dim = pages.head_dim;

  wait_for_predecessor();
  release_successor();
  constexpr int kQueryPacks = kRows * kDim / 8 / kThreads;
  uint4 query_pack[kQueryPacks];
#pragma unroll
  for (int i = 0; i < kQueryPacks; ++i) {
    const int index = threadIdx.x + i * kThreads, at = index % (kDim / 8) * 8;
    const Row row = make_row(p, kv_head, first_row + index / (kDim / 8));
    const T* q = static_cast<const T*>(p.q) + batch * p.q_batch_stride + row.query * p.q_query_stride +
                 row.head * p.q_head_stride;
    query_pack[i] = make_uint4(0, 0, 0, 0);
    if (row.valid && at < dim) query_pack[i] = *reinterpret_cast<const uint4*>(q + at);
  }
  const int length = p.lengths[batch];
  const Range seen[2] = {seen_by(p, make_row(p, kv_head, first_row + group), length),
                         seen_by(p, make_row(p, kv_head, first_row + group + 8), length)};
  const int start = seen_by(p, make_row(p, kv_head, first_row), length).begin / kKeys * kKeys;
  const int tiles = (length - start + kKeys - 1) / kKeys;
  const int per_split = max(kLeastTiles, (tiles + splits - 1) / splits);
  const int active = max(1, (tiles + per_split - 1) / per_split);
  if (split >= active) return;
  const int tile_end = min(tiles, (split + 1) * per_split);
#pragma unroll
  for (int i = 0; i < kQueryPacks; ++i) {
    const int index = threadIdx.x + i * kThreads;
    *reinterpret_cast<uint4*>(&queries[index / (kDim / 8)][index % (kDim / 8) * 8]) = query_pack[i];
  }

  // Address of the first key of a tile within either half of the cache, for this head.
  const auto offset_of = [&](int tile) {
    const int position = start + tile * kKeys;
    const int64_t page = pages.block_table[batch * pages.block_table_stride + position / pages.page_size];
    return page * pages.page_stride + position % pages.page_size * pages.slot_stride + kv_head * pages.head_stride;
  };
  const auto load_keys = [&](KeyTile<kDim>& keys, int tile, int64_t offset) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = group + 8 * half;
      const T* at = static_cast<const T*>(pages.keys) + offset + key * pages.slot_stride + 8 * member;
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c)
        keys.pack[half][c] =
            load_once(at + 32 * c, start + tile * kKeys + key < length && 32 * c + 8 * member < dim && tile < tile_end);
    }
  };
  const auto load_values = [&](ValueTile<kDim>& values, int tile, int64_t offset) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * member + i % 2 + i / 2 * 8;
      const T* at = static_cast<const T*>(pages.values) + offset + key * pages.slot_stride + 8 * group;
#pragma unroll
      for (int j = 0; j < kDim / 64; ++j)
        values.pack[i][j] = load_once(at + 64 * j, start + tile * kKeys + key < length && 64 * j + 8 * group < dim);
    }
  };

  Softmax state[2];
  float out[kDim / 8][4] = {};
  KeyTile<kDim> keys;
  ValueTile<kDim> values;
  int tile = split * per_split + warp;
  int64_t offset = tile < tile_end ? offset_of(tile) : 0;
  load_keys(keys, tile, offset);
  __syncthreads();
  for (; tile < tile_end; tile += kWarps) {
    load_values(values, tile, offset);
    float score[2][4] = {};
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const auto& query = *reinterpret_cast<const uint4*>(&queries[group][32 * c + 8 * member]);
      const auto& query8 = *reinterpret_cast<const uint4*>(&queries[group + 8][32 * c + 8 * member]);
#pragma unroll
      for (int n = 0; n < 2; ++n) multiply_add_packs<T>(score[n], query, query8, keys.pack[n][c]);
    }
    const int next = tile + kWarps;
    offset = next < tile_end ? offset_of(next) : 0;
    if constexpr (kDim <= 128) load_keys(keys, next, offset);

    uint32_t weights[4];  // of rows group and group + 8, for the keys below and above the middle of the tile
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float s[4];
      float top = state[half].top;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = start + tile * kKeys + i / 2 * 8 + member * 2 + i % 2;
        s[i] = score[i / 2][half * 2 + i % 2] * p.scale;
        if (p.cap > 0) s[i] = p.cap * tanhf(s[i] / p.cap);
        s[i] = key >= seen[half].begin && key < seen[half].end ? s[i] * kLog2e : -INFINITY;
        top = fmaxf(top, s[i]);
      }
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float factor = rescale(state[half].top, top), base = top == -INFINITY ? 0.0f : top;
      state[half].top = top;
      state[half].sum *= factor;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[i] = exp2f(s[i] - base);
        state[half].sum += s[i];
      }
      weights[half] = pack2<T>(s[0], s[1]);
      weights[half + 2] = pack2<T>(s[2], s[3]);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        out[n][half * 2] *= factor;
        out[n][half * 2 + 1] *= factor;
      }
    }
#pragma unroll
    for (int j = 0; j < kDim / 64; ++j) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        multiply_add<T>(
            out[j * 8 + i], weights,
            {pair_of<T>(values.pack[0][j], values.pack[1][j], i), pair_of<T>(values.pack[2][j], values.pack[3][j], i)});
    }
    // There are no registers for them any earlier.
    if constexpr (kDim > 128) load_keys(keys, next, offset);
  }

  // Column group of product (j, i) is feature 64 j + 8 group + i; this lane holds columns 2 member and 2 member + 1.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state[half].sum += __shfl_xor_sync(kAllLanes, state[half].sum, 1);
    state[half].sum += __shfl_xor_sync(kAllLanes, state[half].sum, 2);
    const int r = group + 8 * half;
    if (member == 0) parts[warp][r] = state[half];
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        outputs[(warp * kRows + r) * kDim + n / 8 * 64 + (2 * member + i) * 8 + n % 8] = out[n][half * 2 + i];
    }
  }
  __syncthreads();

  const int row_count = min(kRows, p.heads / pages.kv_heads * p.queries - first_row);
  const int64_t block = int64_t{batch} * gridDim.y + blockIdx.y;
  constexpr int64_t kPart = kRows * (kDim + 2);  // floats of a split's part: outputs, then sums and tops
  float* partial = a.partials + (block * splits + split) * kPart;
  const auto write = [&](int i, const float4& value) {
    const Row row = make_row(p, kv_head, first_row + i / kDim);
    T* out = static_cast<T*>(p.out) + ((int64_t{batch} * p.queries + row.query) * p.heads + row.head) * dim + i % kDim;
    if (i % kDim < dim) *reinterpret_cast<uint2*>(out) = {pack2<T>(value.x, value.y), pack2<T>(value.z, value.w)};
  };
  for (int i = 4 * threadIdx.x; i < row_count * kDim; i += 4 * kThreads) {
    const int r = i / kDim;
    float top = -INFINITY, sum = 0;
    float4 value{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, parts[w][r].top);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = rescale(parts[w][r].top, top);
      sum += factor * parts[w][r].sum;
      add_scaled(value, factor, *reinterpret_cast<const float4*>(outputs + w * kRows * kDim + i));
    }
    if (active == 1) {
      float4 scaled{};
      add_scaled(scaled, sum > 0 ? 1.0f / sum : 0.0f, value);
      write(i, scaled);
      continue;
    }
    *reinterpret_cast<float4*>(partial + i) = value;
    if (i % kDim == 0) {
      partial[kRows * kDim + r] = sum;
      partial[kRows * kDim + kRows + r] = top;
    }
  }
  if (active == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&a.counters[block], 1) == active - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (threadIdx.x == 0) a.counters[block] = 0;
  const float* part = a.partials + block * splits * kPart;
  float* factors = outputs;  // [kRows][kMaxSplits]
  for (int r = warp; r < row_count; r += kWarps) {
    constexpr int kEach = kMaxSplits / kWarp;
    float sums[kEach], tops[kEach], top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int s = i * kWarp + static_cast<int>(threadIdx.x) % kWarp;
      const float* at = part + s * kPart + kRows * kDim + r;
      sums[i] = s < active ? __ldcg(at) : 0.0f;
      tops[i] = s < active ? __ldcg(at + kRows) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) top = fmaxf(top, tops[i]);
#pragma unroll
    for (int o = kWarp / 2; o > 0; o /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, o));
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += rescale(tops[i], top) * sums[i];
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      factors[r * kMaxSplits + i * kWarp + threadIdx.x % kWarp] = sum > 0 ? rescale(tops[i], top) / sum : 0.0f;
  }
  __syncthreads();
  for (int i = 4 * threadIdx.x; i < row_count * kDim; i += 4 * kThreads) {
    float4 value{};
#pragma unroll 16
    for (int s = 0; s < active; ++s)
      add_scaled(value, factors[i / kDim * kMaxSplits + s],
                 __ldcg(reinterpret_cast<const float4*>(part + s * kPart + i)));
    write(i, value);
  }
}

struct Shape {
  int splits, row_blocks;
  int64_t blocks;  // of rows, over the whole batch
};

Shape shape_of(const PagedAttention& p) {
  // As many splits as the device holds at a time, but none with less than the least number of tiles.
  const int row_blocks = (p.heads / p.pages.kv_heads * p.queries + kRows - 1) / kRows;
  const int64_t blocks = int64_t{p.batch} * p.pages.kv_heads * row_blocks;
  const int resident = p.pages.head_dim <= 128 ? kResident<128> : kResident<256>;
  const int64_t wanted = resident * device_attribute(cudaDevAttrMultiProcessorCount, kName) / blocks;
  const int64_t most = (p.max_length + kLeastTiles * kKeys - 1) / (kLeastTiles * kKeys);
  return {static_cast<int>(std::clamp<int64_t>(std::min(wanted, most), 1, kMaxSplits)), row_blocks, blocks};
}

int padded_dim(int dim) { return dim <= 64 ? 64 : dim <= 128 ? 128 : 256; }

template <typename T, int kDim>
void launch_dim(const Launch& a, const Shape& shape, cudaStream_t stream) {
  const dim3 grid(shape.splits, a.p.pages.kv_heads * shape.row_blocks, a.p.batch);
  constexpr size_t kShared = sizeof(float) * kWarps * kRows * kDim;
  static_assert(kShared >= sizeof(float) * kRows * kMaxSplits);
  launch(kName, attend<T, kDim>, {grid, kThreads, kShared}, stream, a);
}

void check(const PagedAttention& p) {
  const PagesView& pages = p.pages;
  require(p.q && p.out && pages.keys && pages.values && pages.block_table && p.lengths, kName, "null pointer");
  for (const void* pointer : {p.q, static_cast<const void*>(pages.keys), static_cast<const void*>(pages.values)})
    require(aligned(pointer, 16), kName, "misaligned pointer");
  require(pages.head_dim > 0 && pages.head_dim % 8 == 0 && pages.head_dim <= 256, kName,
          "head_dim must be a multiple of 8, and at most 256");
  require(pages.kv_heads > 0 && p.heads % pages.kv_heads == 0, kName, "kv_heads must divide heads");
  require(pages.page_size > 0 && pages.page_size % kKeys == 0, kName, "page_size must be a multiple of 16");
  for (const int64_t stride :
       {p.q_batch_stride, p.q_query_stride, p.q_head_stride, pages.page_stride, pages.slot_stride, pages.head_stride})
    require(stride % 8 == 0, kName, "strides must be multiples of 8");
  require(p.batch <= 65535 && p.queries > 0 && p.window >= 0 && p.cap >= 0, kName, "argument out of range");
}

}  // namespace

AttentionWorkspace attention_workspace(const PagedAttention& p) {
  if (p.batch <= 0) return {0, 0};
  check(p);
  const Shape shape = shape_of(p);
  const int64_t part = sizeof(float) * kRows * (padded_dim(p.pages.head_dim) + 2);
  return {shape.splits > 1 ? shape.blocks * shape.splits * part : 0, shape.splits > 1 ? shape.blocks : 0};
}

void paged_attention(const PagedAttention& p, void* partials, int32_t* counters, cudaStream_t stream) {
  if (p.batch <= 0) return;
  check(p);
  const Shape shape = shape_of(p);
  require(shape.splits == 1 || (partials && counters), kName, "no workspace");
  require(p.pages.kv_heads * shape.row_blocks <= 65535, kName, "too many heads");
  const Launch a{p, static_cast<float*>(partials), counters, shape.row_blocks};
  with_half_type(p.type, kName, [&](auto element) {
    using T = decltype(element);
    switch (padded_dim(p.pages.head_dim)) {
      case 64:
        return launch_dim<T, 64>(a, shape, stream);
      case 128:
        return launch_dim<T, 128>(a, shape, stream);
      default:
        return launch_dim<T, 256>(a, shape, stream);
    }
  });
}

}  // namespace constrain::cuda
