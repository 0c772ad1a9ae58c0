#include <cstdint>

#include "cuda/packed/launch.cuh"
#include "cuda/packed/packed.cuh"

namespace constrain::cuda {
namespace {

constexpr int kUnpackWarps = 4;

// A warp writes one record: each lane 16 bytes of two rows for each quarter.
template <typename T, typename Format>
__global__ void __launch_bounds__(kUnpackWarps* kWarp) unpack_records(Unpacking p) {
  wait_for_predecessor();
  release_successor();
  const RecordLayout<Format> layout(p.weight.shape);
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int spans = p.weight.spans(), span = blockIdx.y * kUnpackWarps + threadIdx.x / kWarp;
  if (span >= spans) return;
  const auto* record =
      static_cast<const uint8_t*>(p.weight.records) + (int64_t{blockIdx.x} * spans + span) * layout.bytes;
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const int input = span * kPackedSpan + quarter * 32 + t * 8;
    const int place = quarter * 32 / Format::kGroup * 8 + g;
    uint32_t subscale[2] = {};
    load_subscales<T>(record, layout, quarter, lane, subscale);
    const float2 scale = load_scales<T>(record, layout, place), carried = load_carried<T>(record, layout, place);
    const uint4 words = load_codes(record, quarter * 2 / Format::kSteps, lane);
    uint32_t a[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      Format::template operands<T>(words, (quarter * 2 + half) % Format::kSteps, subscale, a[half]);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int output = blockIdx.x * kPackedTile + g + row * 8;
      if (output >= p.weight.outputs || input >= p.weight.inputs) continue;
      float values[8];
      unpack8<T>(make_uint4(a[0][row], a[0][row + 2], a[1][row], a[1][row + 2]), values);
#pragma unroll
      for (float& value : values) value = (value - (row == 0 ? carried.x : carried.y)) * (row == 0 ? scale.x : scale.y);
      *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + int64_t{output} * p.weight.inputs + input) = pack8<T>(values);
    }
  }
}

void check(const PackedWeight& weight, const void* other, const void* out) {
  require(weight.records && other && out, kPackedName, "null pointer");
  for (const void* pointer : {weight.records, other}) require(aligned(pointer, 16), kPackedName, "misaligned pointer");
  require(weight.inputs > 0 && weight.inputs % 8 == 0, kPackedName, "inputs must be a multiple of 8");
  require(weight.outputs > 0 && weight.outputs <= INT32_MAX / 4, kPackedName, "outputs out of range");
  require(weight.inputs <= INT32_MAX / 4, kPackedName, "inputs out of range");
  const RecordShape& shape = weight.shape;
  require(shape.group == 32 || shape.group == 128, kPackedName, "groups of 32 or 128 inputs");
  const bool integers = shape.codes == Codes::int4 || shape.codes == Codes::int8;
  require(integers || !shape.zeros, kPackedName, "only integers have zero points");
  require(shape.codes != Codes::scaled_float4 || shape.group == 128, kPackedName, "scales of 128 inputs");
}

}  // namespace

void packed_product(const PackedProduct& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p.weight, p.x, p.out);
  require(aligned(p.norm_weight, 16) && p.x_stride % 8 == 0, kPackedName, "misaligned rows");
  require(p.rows <= kMostPackedRows, kPackedName, "too many rows");
  require(!p.gated || p.weight.outputs % (2 * kPackedTile) == 0, kPackedName, "gated outputs are multiples of 16");
  switch (p.weight.shape.codes) {
    case Codes::int4:
      return int4_product(p, stream);
    case Codes::int8:
      return int8_product(p, stream);
    case Codes::float8:
      return float8_product(p, stream);
    case Codes::float4:
      return float4_product(p, stream);
    case Codes::scaled_float4:
      return scaled_float4_product(p, stream);
  }
}

void unpack_weight(const Unpacking& p, cudaStream_t stream) {
  check(p.weight, p.out, p.out);
  const dim3 blocks(p.weight.tiles(), (p.weight.spans() + kUnpackWarps - 1) / kUnpackWarps);
  with_half_type(p.type, kPackedName, [&](auto element) {
    with_codes(p.weight.shape.codes, [&](auto kind) {
      with_groups<decltype(kind)>(p.weight.shape, [&](auto format) {
        launch(kPackedName, unpack_records<decltype(element), decltype(format)>, {blocks, kUnpackWarps * kWarp}, stream,
               p);
      });
    });
  });
}

}  // namespace constrain::cuda
