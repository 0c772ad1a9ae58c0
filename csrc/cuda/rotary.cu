#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/rotary.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "rotate_into_pages";
constexpr int kThreads = 128;

// The packs `low` and `high` of a head hold the partners of eight pairs, which are turned by their angles.
template <typename T>
__device__ void turn(const uint4& low, const uint4& high, const uint4& cos_pack, const uint4& sin_pack, uint4& out_low,
                     uint4& out_high) {
  float x[8], y[8], cos[8], sin[8], turned_x[8], turned_y[8];
  unpack8<T>(low, x);
  unpack8<T>(high, y);
  unpack8<T>(cos_pack, cos);
  unpack8<T>(sin_pack, sin);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    turned_x[j] = x[j] * cos[j] - y[j] * sin[j];
    turned_y[j] = y[j] * cos[j] + x[j] * sin[j];
  }
  out_low = pack8<T>(turned_x);
  out_high = pack8<T>(turned_y);
}

// Packs 2 i and 2 i + 1 of a head are handled by thread i: of the rotated part, pack i of each half.
template <typename T>
__global__ void __launch_bounds__(kThreads) rotate_heads(RotaryRows p) {
  wait_for_predecessor();
  release_successor();
  const PagesView& pages = p.pages;
  const int pairs = (pages.head_dim / 8 + 1) / 2, turned = p.rotary_dim / 16, packs = pages.head_dim / 8;
  const int all_heads = p.heads + 2 * pages.kv_heads;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.batch * p.width * all_heads * pairs) return;
  const int pair = static_cast<int>(index % pairs), head = static_cast<int>(index / pairs % all_heads);
  const int64_t token = index / pairs / all_heads, row = token / p.width;
  if (p.past[row] < 0) return;
  const int64_t position = p.past[row] + token % p.width;

  const bool is_value = head >= p.heads + pages.kv_heads;
  const bool is_turned = !is_value && pair < turned;
  const int low = is_turned ? pair : 2 * pair;
  const int high = is_turned ? pair + turned : 2 * pair + 1;
  auto* in = static_cast<uint4*>(p.qkv) + (token * all_heads + head) * packs;
  uint4* out = in;
  if (head >= p.heads) {
    const int64_t page = pages.block_table[row * pages.block_table_stride + position / pages.page_size];
    const int64_t at = page * pages.page_stride + position % pages.page_size * pages.slot_stride +
                       (head - p.heads) % pages.kv_heads * pages.head_stride;
    out = reinterpret_cast<uint4*>(static_cast<T*>(is_value ? pages.values : pages.keys) + at);
  }
  uint4 out_low = in[low], out_high = high < packs ? in[high] : uint4{};
  if (is_turned) {
    const auto* cos = static_cast<const uint4*>(p.cos) + position * 2 * turned;
    const auto* sin = static_cast<const uint4*>(p.sin) + position * 2 * turned;
    turn<T>(out_low, out_high, cos[pair], sin[pair + turned], out_low, out_high);
  }
  out[low] = out_low;
  if (high < packs) out[high] = out_high;
}

void check(const RotaryRows& p) {
  const PagesView& pages = p.pages;
  require(p.qkv && p.cos && p.sin && p.past && pages.keys && pages.values && pages.block_table, kName, "null pointer");
  for (const void* pointer : {static_cast<const void*>(p.qkv), p.cos, p.sin, static_cast<const void*>(pages.keys),
                              static_cast<const void*>(pages.values)})
    require(aligned(pointer, 16), kName, "misaligned pointer");
  require(pages.head_dim > 0 && pages.head_dim % 8 == 0, kName, "head_dim must be a multiple of 8");
  require(p.rotary_dim > 0 && p.rotary_dim % 16 == 0 && p.rotary_dim <= pages.head_dim, kName,
          "rotary_dim must be a multiple of 16, and no more than head_dim");
  require(p.heads > 0 && pages.kv_heads > 0 && pages.page_size > 0, kName, "empty shape");
  require(pages.page_stride % 8 == 0 && pages.slot_stride % 8 == 0 && pages.head_stride % 8 == 0, kName,
          "misaligned pages");
}

}  // namespace

void rotate_into_pages(const RotaryRows& p, cudaStream_t stream) {
  if (p.batch <= 0 || p.width <= 0) return;
  check(p);
  const int64_t work = p.batch * p.width * (p.heads + 2 * p.pages.kv_heads) * ((p.pages.head_dim / 8 + 1) / 2);
  const int64_t blocks = (work + kThreads - 1) / kThreads;
  require(blocks <= INT32_MAX, kName, "too many elements");
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, rotate_heads<decltype(element)>, {dim3(static_cast<unsigned>(blocks)), kThreads}, stream, p);
  });
}

}  // namespace constrain::cuda
