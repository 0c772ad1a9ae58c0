#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/bitmask.cuh"

namespace constrain::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGridRows = 65535;

// Bit patterns of -inf, so that one kernel by element size serves all types of that size.
constexpr uint32_t kMinusInfinity32 = 0xff800000u;
constexpr uint16_t kMinusInfinityHalf = 0xfc00u;
constexpr uint16_t kMinusInfinityBfloat = 0xff80u;

// One thread a token: the 32 threads of a warp share a word, and logits are only ever written, never read.
template <typename Bits>
__global__ void exclude(Bits* logits, int64_t logits_stride, const int32_t* bits, int64_t bits_stride, int64_t rows,
                        int64_t width, Bits minus_infinity) {
  const int64_t token = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token >= width) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const auto word = static_cast<uint32_t>(bits[row * bits_stride + token / 32]);
    if ((word >> (token % 32) & 1u) == 0) logits[row * logits_stride + token] = minus_infinity;
  }
}

template <typename Bits>
void launch(const LogitsView& logits, const BitmaskView& bits, Bits minus_infinity, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((logits.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(std::min(logits.rows, kMaxGridRows)));
  exclude<<<grid, kThreads, 0, stream>>>(static_cast<Bits*>(logits.data), logits.stride, bits.data, bits.stride,
                                         logits.rows, logits.width, minus_infinity);
}

void check(const LogitsView& logits, const BitmaskView& bits) {
  const size_t size = logits.type == FloatType::float32 ? 4 : 2;
  if (logits.data == nullptr || bits.data == nullptr) throw std::invalid_argument("apply_bitmask: null pointer");
  if (reinterpret_cast<uintptr_t>(logits.data) % size != 0 || reinterpret_cast<uintptr_t>(bits.data) % 4 != 0)
    throw std::invalid_argument("apply_bitmask: misaligned pointer");
  if (logits.rows > 1 && (logits.stride < logits.width || bits.stride < (logits.width + 31) / 32))
    throw std::invalid_argument("apply_bitmask: rows overlap");
  if (logits.width > int64_t{kThreads} * INT32_MAX) throw std::invalid_argument("apply_bitmask: width too large");
}

}  // namespace

void apply_bitmask(const LogitsView& logits, const BitmaskView& bits, cudaStream_t stream) {
  if (logits.rows <= 0 || logits.width <= 0) return;
  check(logits, bits);
  switch (logits.type) {
    case FloatType::float32:
      launch(logits, bits, kMinusInfinity32, stream);
      break;
    case FloatType::float16:
      launch(logits, bits, kMinusInfinityHalf, stream);
      break;
    case FloatType::bfloat16:
      launch(logits, bits, kMinusInfinityBfloat, stream);
      break;
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("apply_bitmask: ") + cudaGetErrorString(error));
}

}  // namespace constrain::cuda
