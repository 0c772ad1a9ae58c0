#include <algorithm>

#include "cuda/bitmask.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "apply_bitmask";
constexpr int kThreads = 256;
constexpr int kPacksPerThread = 4;
constexpr int64_t kMaxGridRows = 65535;

// Bit patterns of -inf, so that one kernel by element size serves all types of that size.
constexpr uint32_t kMinusInfinity32 = 0xff800000u;
constexpr uint16_t kMinusInfinityHalf = 0xfc00u;
constexpr uint16_t kMinusInfinityBfloat = 0xff80u;

template <typename Bits, int kPack>
struct alignas(sizeof(Bits) * kPack) Pack {
  Bits logits[kPack];
};

// A thread takes kPack tokens at a time: 16 bytes of logits, or one token where rows are not aligned for that. Packs of
// which all tokens are excluded are overwritten without being read. Others are written as a whole, since partial writes
// of a memory sector are far slower.
template <typename Bits, int kPack>
__global__ void __launch_bounds__(kThreads) exclude(LogitsView logits, BitmaskView bits, Bits minus_infinity) {
  wait_for_predecessor();
  release_successor();
  constexpr uint32_t kAll = (1u << kPack) - 1;
  const int64_t first = (int64_t{blockIdx.x} * kPacksPerThread * kThreads + threadIdx.x) * kPack;
  for (int64_t row = blockIdx.y; row < logits.rows; row += gridDim.y) {
    Bits* out = static_cast<Bits*>(logits.data) + row * logits.stride;
    const int64_t chosen = bits.chosen ? bits.chosen[row] : row;
    if (chosen < 0) continue;
    const int32_t* words = bits.data + chosen * bits.stride;
    uint32_t excluded[kPacksPerThread];
    Pack<Bits, kPack> pack[kPacksPerThread];
#pragma unroll
    for (int i = 0; i < kPacksPerThread; ++i) {
      const int64_t token = first + int64_t{i} * kThreads * kPack;
      excluded[i] =
          token + kPack <= logits.width ? ~static_cast<uint32_t>(words[token / 32]) >> (token % 32) & kAll : 0;
    }
#pragma unroll
    for (int i = 0; i < kPacksPerThread; ++i) {
      const int64_t token = first + int64_t{i} * kThreads * kPack;
      if (excluded[i] != 0 && excluded[i] != kAll) pack[i] = *reinterpret_cast<Pack<Bits, kPack>*>(out + token);
    }
#pragma unroll
    for (int i = 0; i < kPacksPerThread; ++i) {
      const int64_t token = first + int64_t{i} * kThreads * kPack;
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        if (excluded[i] >> j & 1u) pack[i].logits[j] = minus_infinity;
      if (excluded[i] != 0) *reinterpret_cast<Pack<Bits, kPack>*>(out + token) = pack[i];
    }
    // The last tokens, which do not fill a pack.
    const int64_t token = logits.width / kPack * kPack + threadIdx.x;
    if (blockIdx.x == 0 && token < logits.width && (words[token / 32] >> (token % 32) & 1) == 0)
      out[token] = minus_infinity;
  }
}

template <typename Bits>
void launch_bits(const LogitsView& logits, const BitmaskView& bits, Bits minus_infinity, cudaStream_t stream) {
  constexpr int kVector = 16 / sizeof(Bits);
  const bool vectors = aligned(logits.data, 16) && (logits.rows == 1 || logits.stride % kVector == 0);
  const int64_t tokens = int64_t{vectors ? kVector : 1} * kPacksPerThread * kThreads;
  const int64_t blocks = (logits.width + tokens - 1) / tokens;
  require(blocks <= INT32_MAX, kName, "width too large");
  const LaunchShape shape{
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(std::min(logits.rows, kMaxGridRows))), kThreads};
  launch(kName, vectors ? exclude<Bits, kVector> : exclude<Bits, 1>, shape, stream, logits, bits, minus_infinity);
}

void check(const LogitsView& logits, const BitmaskView& bits) {
  require(logits.data && bits.data, kName, "null pointer");
  require(aligned(logits.data, logits.type == FloatType::float32 ? 4 : 2) && aligned(bits.data, 4), kName,
          "misaligned pointer");
  const bool several = logits.rows > 1;
  require(!several || logits.stride >= logits.width, kName, "rows overlap");
  require(!(several || bits.chosen) || bits.stride >= (logits.width + 31) / 32, kName, "rows overlap");
}

}  // namespace

void apply_bitmask(const LogitsView& logits, const BitmaskView& bits, cudaStream_t stream) {
  if (logits.rows <= 0 || logits.width <= 0) return;
  check(logits, bits);
  switch (logits.type) {
    case FloatType::float32:
      return launch_bits(logits, bits, kMinusInfinity32, stream);
    case FloatType::float16:
      return launch_bits(logits, bits, kMinusInfinityHalf, stream);
    case FloatType::bfloat16:
      return launch_bits(logits, bits, kMinusInfinityBfloat, stream);
  }
}

}  // namespace constrain::cuda
