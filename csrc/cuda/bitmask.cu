#include <algorithm>

#include "cuda/bitmask.cuh"
#include "cuda/launch.cuh"
#include "cuda/sampling/selection.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "apply_bitmask";
constexpr const char* kMeasure = "measure_masses";
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

// The logarithm of the sum of exp(logit) over the tokens of a row, in every thread; minus infinity for no token.
__device__ float log_sum_exp(const Source& source, float* scratch) {
  float top = -INFINITY;
  for_each(source, [&](float x, int) { top = fmaxf(top, x); });
  for (int offset = kWarp / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = top;
  __syncthreads();
  for (int w = 0; w < kSampleWarps; ++w) top = fmaxf(top, scratch[w]);
  if (top == -INFINITY) return top;  // the same in every thread
  float sum = 0;
  for_each(source, [&](float x, int) { sum += expf(x - top); });
  return top + logf(block_sum(sum, scratch));
}

// The bits of a thread's words of the mask, of which it has `each` in a row; bits beyond the width are clear.
struct Words {
  const int32_t* allowed;
  const int32_t* watched;
  int width, each;

  template <typename Use>
  __device__ void for_each_word(bool few, const Use& use) const {
    const int words = (width + kWarp - 1) / kWarp, first = threadIdx.x * each;
    for (int w = first; w < min(first + each, words); ++w) {
      uint32_t bits = allowed ? allowed[w] : ~0u;
      if (!few) bits &= watched ? watched[w] : 0u;
      if (width - w * kWarp < kWarp) bits &= (1u << (width - w * kWarp)) - 1;
      use(w, bits);
    }
  }
};

// Writes the logits of the listed tokens: each thread those of its words, at the places that follow from the number of
// tokens in the words before.
__device__ void list_choices(const MaskedRows& p, const Words& words, const float* row, float* choices,
                             uint64_t* scratch) {
  uint64_t own = 0, total = 0;
  const auto count = [&](bool few) {
    own = 0;
    words.for_each_word(few, [&](int, uint32_t bits) { own += __popc(bits); });
    return block_exclusive_sum(own, scratch, total);
  };
  uint64_t place = count(true);
  const bool few = total <= static_cast<uint64_t>(p.max_choices);
  if (!few) place = count(false);
  words.for_each_word(few, [&](int w, uint32_t bits) {
    for (; bits && place < p.max_choices; bits &= bits - 1, ++place) {
      const float x = row[w * kWarp + __ffs(bits) - 1];
      choices[place] = isfinite(x) ? x : -INFINITY;
    }
  });
}

__global__ void __launch_bounds__(kSampleThreads) measure_rows(MaskedRows p) {
  __shared__ float scratch[kSampleWarps];
  __shared__ uint64_t counts[kSampleWarps];
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x, warp = threadIdx.x / kWarp;
  const int range = (p.width + kSampleThreads - 1) / kSampleThreads * kWarp;
  const float* row = p.logits + r * p.stride;
  Source source{row, nullptr, nullptr, min(warp * range, p.width), min((warp + 1) * range, p.width)};
  const float all = log_sum_exp(source, scratch);
  source.bits = bits_of(p.allowed, r);
  const float allowed = source.bits ? log_sum_exp(source, scratch) : all;
  if (threadIdx.x == 0) {
    const float sampled = row[max(p.tokens[r], int64_t{0})];
    p.sums[3 * r] = all;
    p.sums[3 * r + 1] = allowed;
    p.sums[3 * r + 2] = isfinite(sampled) ? sampled : -INFINITY;
  }
  const int words = (p.width + kWarp - 1) / kWarp;
  const Words listed{source.bits, bits_of(p.watched, r), p.width, (words + kSampleThreads - 1) / kSampleThreads};
  list_choices(p, listed, row, p.choices + static_cast<int64_t>(r) * p.max_choices, counts);
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

void measure_masses(const MaskedRows& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.logits && p.tokens && p.sums && p.choices, kMeasure, "null pointer");
  require(p.width > 0 && p.width <= INT32_MAX - kSampleThreads, kMeasure, "width out of range");
  require(p.max_choices > 0, kMeasure, "no room for choices");
  for (const BitmaskView& mask : {p.allowed, p.watched}) {
    const bool several = p.rows > 1 || mask.chosen;
    require(!mask.data || !several || mask.stride >= (p.width + 31) / 32, kMeasure, "rows overlap");
  }
  launch(kMeasure, measure_rows, {dim3(p.rows), kSampleThreads}, stream, p);
}

}  // namespace constrain::cuda
