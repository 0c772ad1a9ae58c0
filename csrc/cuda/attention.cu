#include <algorithm>
#include <cmath>

#include "cuda/attention.cuh"
#include "cuda/attention_launch.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = kAttentionName;
constexpr int kFewWarps = 4;
// Time of a block besides its tiles, in units of a tile's time with all warps of a multiprocessor at work.
constexpr double kBlockCost = 2;

int padded_dim(int dim) { return dim <= 64 ? 64 : dim <= 128 ? 128 : 256; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Shared memory for the outputs of a block's warps.
size_t shared_bytes(const PagedAttention& p, int warps) {
  const int rows = std::min(kAttentionRows, p.heads / p.pages.kv_heads * p.queries);
  return sizeof(float) * warps * rows * (padded_dim(p.pages.head_dim) + 8);
}

// Shared memory for the queries, and for a softmax of two floats for each row and warp.
size_t static_shared_bytes(const PagedAttention& p) {
  constexpr size_t kSoftmaxes = 2 * sizeof(float) * kMostAttentionWarps<128>;
  return kAttentionRows * (sizeof(uint16_t) * (padded_dim(p.pages.head_dim) + 32) + kSoftmaxes) + 16;
}

// Chooses the number of warps of a block, and of splits. More warps mean fewer splits to join, but fewer blocks on a
// multiprocessor. Fewer warps divide the work of many sequences more evenly, and need less shared memory, which differs
// between devices.
AttentionShape shape_of(const PagedAttention& p) {
  const int row_blocks = static_cast<int>(ceil_div(p.heads / p.pages.kv_heads * p.queries, kAttentionRows));
  const int64_t blocks = int64_t{p.batch} * p.pages.kv_heads * row_blocks;
  const int64_t tiles = ceil_div(p.max_length, kAttentionKeys);
  const int most_warps = p.pages.head_dim <= 128 ? kMostAttentionWarps<128> : kMostAttentionWarps<256>;
  const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount, kName);
  const size_t shared = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, kName);
  AttentionShape best{};
  double least = INFINITY;
  for (const int warps : {most_warps, kFewWarps}) {
    const size_t bytes = shared_bytes(p, warps);
    if (bytes + static_shared_bytes(p) > shared) continue;
    const int resident = most_warps / warps;
    const int64_t wanted = std::min(multiprocessors * resident / blocks, ceil_div(tiles, kLeastTiles));
    const int64_t splits = std::clamp<int64_t>(wanted, 1, kMaxSplits);
    const int64_t together = ceil_div(blocks * splits, multiprocessors);
    const int64_t rounds = ceil_div(tiles, splits * warps);
    const double share = static_cast<double>(std::min<int64_t>(together, resident) * warps) / most_warps;
    const double cost = ceil_div(together, resident) * (kBlockCost + rounds * share);
    if (cost > 0.9 * least) continue;
    least = cost;
    best = {warps, static_cast<int>(splits), row_blocks, blocks, bytes};
    // All tiles at the same time: nothing is faster.
    if (splits * warps >= tiles) break;
  }
  return best;
}

bool is_grouped(KVFormat format) { return format == KVFormat::group8 || format == KVFormat::group4; }

void check(const PagedAttention& p) {
  const PagesView& pages = p.pages;
  require(p.qkv && p.out && p.cos && p.sin && pages.keys && pages.values && pages.block_table && p.lengths, kName,
          "null pointer");
  for (const void* pointer :
       {p.qkv, p.cos, p.sin, static_cast<const void*>(pages.keys), static_cast<const void*>(pages.values),
        static_cast<const void*>(pages.key_scales), static_cast<const void*>(pages.value_scales)})
    require(aligned(pointer, 16), kName, "misaligned pointer");
  require(pages.head_dim > 0 && pages.head_dim % 8 == 0 && pages.head_dim <= 256, kName,
          "head_dim must be a multiple of 8, and at most 256");
  require(p.rotary_dim > 0 && p.rotary_dim % 16 == 0 && p.rotary_dim <= pages.head_dim, kName,
          "rotary_dim must be a multiple of 16, and at most head_dim");
  require(pages.kv_heads > 0 && p.heads % pages.kv_heads == 0, kName, "kv_heads must divide heads");
  require(pages.page_size > 0 && pages.page_size % kAttentionKeys == 0, kName, "page_size must be a multiple of 16");
  for (const int64_t stride : {pages.page_stride, pages.slot_stride, pages.head_stride})
    require(stride % 8 == 0, kName, "strides must be multiples of 8");
  require(p.batch <= 65535 && p.queries > 0 && p.window >= 0 && p.cap >= 0, kName, "argument out of range");
  if (!is_grouped(pages.key_format) && !is_grouped(pages.value_format)) return;
  require(pages.key_scales && pages.value_scales, kName, "no scales");
  require(pages.head_dim == 64 || pages.head_dim == 128 || pages.head_dim == 256, kName,
          "quantized groups take a head_dim of 64, 128 or 256");
  for (const int64_t stride : {pages.page_stride, pages.slot_stride, pages.head_stride})
    require(stride % pages.head_dim == 0, kName, "pages of quantized groups must be contiguous");
}

}  // namespace

AttentionWorkspace attention_workspace(const PagedAttention& p) {
  if (p.batch <= 0) return {0, 0};
  check(p);
  const AttentionShape shape = shape_of(p);
  if (shape.splits == 1) return {0, 0};
  const int64_t part = sizeof(float) * kAttentionRows * (padded_dim(p.pages.head_dim) + 2);
  return {shape.blocks * shape.splits * part, shape.blocks};
}

void paged_attention(const PagedAttention& p, void* partials, int32_t* counters, cudaStream_t stream) {
  if (p.batch <= 0) return;
  check(p);
  const AttentionShape shape = shape_of(p);
  require(shape.splits == 1 || (partials && counters), kName, "no workspace");
  require(p.pages.kv_heads * shape.row_blocks <= 65535, kName, "too many heads");
  const bool spread = shape.blocks * shape.splits <= device_attribute(cudaDevAttrMultiProcessorCount, kName);
  const AttentionLaunch launch{p, partials, counters, shape.row_blocks, spread};
  const KVFormat keys = p.pages.key_format, values = p.pages.value_format;
  if (keys == KVFormat::plain && values == KVFormat::plain)
    launch_plain_attention(launch, shape, stream);
  else if (keys == KVFormat::float8 && values == KVFormat::float8)
    launch_float8_attention(launch, shape, stream);
  else
    launch_grouped_attention(launch, shape, stream);
}

}  // namespace constrain::cuda
