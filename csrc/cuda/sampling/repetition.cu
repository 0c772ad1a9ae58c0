#include "cuda/launch.cuh"
#include "cuda/sampling/repetition.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "apply_dry";
constexpr int kThreads = 1024;

// The tokens of a row that are looked at.
struct Tokens {
  const int32_t* text;
  const int32_t* pages;
  int page_size, width, start, count;
  const int32_t* breakers;

  __device__ int operator[](int i) const {
    const int at = start + i;
    return text[int64_t{pages[at / page_size]} * page_size + at % page_size];
  }

  __device__ bool is_breaker(int id) const {
    return id < 0 || id >= width || (breakers && (breakers[id / 32] >> (id % 32) & 1));
  }

  // Length, up to `most`, of the suffix that also ends at token i; 0 if a breaker follows there.
  __device__ int match(int i, int most) const {
    int length = 0;
    while (length < most && length <= i && (*this)[i - length] == (*this)[count - 1 - length]) ++length;
    return length > 0 && is_breaker((*this)[i + 1]) ? 0 : length;
  }
};

__global__ void __launch_bounds__(kThreads) penalise_repetitions(Repetition p) {
  __shared__ int suffix, longest;
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x;
  if (p.multiplier[r] == 0) return;
  const int length = p.lengths[r], count = p.ranges[r] > 0 ? min(p.ranges[r], length) : length;
  const Tokens tokens{p.text,
                      p.block_table + r * p.block_table_stride,
                      p.page_size,
                      p.width,
                      length - count,
                      count,
                      bits_of(p.breakers, r)};

  // The end of the sequence that may be repeated: up to the last breaker.
  if (threadIdx.x == 0) {
    suffix = max(min(p.max_ngram[r], count - 1), 0);
    longest = 0;
  }
  __syncthreads();
  const int most = suffix;
  __syncthreads();
  for (int i = threadIdx.x; i < most; i += kThreads)
    if (tokens.is_breaker(tokens[count - 1 - i])) atomicMin(&suffix, i);
  __syncthreads();

  // The longest end that occurred earlier.
  int own = 0;
  for (int i = threadIdx.x; i < count - 1; i += kThreads) own = max(own, tokens.match(i, suffix));
  if (own > 0) atomicMax(&longest, own);
  __syncthreads();
  if (longest == 0 || longest < p.allowed_length[r]) return;

  // The tokens that followed it, once for each time that they did: subtracting the same number again and again gives
  // the same in any order.
  const double exponent = longest - p.allowed_length[r];
  const auto penalty = static_cast<float>(p.multiplier[r] * pow(static_cast<double>(p.base[r]), exponent));
  float* logits = p.logits + r * p.logits_stride;
  for (int i = threadIdx.x; i < count - 1; i += kThreads)
    if (tokens.match(i, longest) == longest) atomicAdd(logits + tokens[i + 1], -penalty);
}

}  // namespace

void apply_dry(const Repetition& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.logits && p.text && p.block_table && p.lengths && p.multiplier && p.base && p.allowed_length &&
              p.max_ngram && p.ranges,
          kName, "null pointer");
  require(p.width > 0 && p.page_size > 0, kName, "width or page size out of range");
  launch(kName, penalise_repetitions, {dim3(p.rows), kThreads}, stream, p);
}

}  // namespace constrain::cuda
