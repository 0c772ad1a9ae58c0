#include <algorithm>
#include <cmath>

#include "cuda/launch.cuh"
#include "cuda/norm.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "normalise";
constexpr int kMaxThreads = 1024;
constexpr int kHeadWarps = 4;

// One block a row. A thread reads a second time only what it has written itself or finds in the L1 cache.
template <typename T>
__global__ void __launch_bounds__(kMaxThreads) normalise_rows(NormRows p) {
  __shared__ float scratch[kWarp];
  wait_for_predecessor();
  release_successor();
  const int packs = p.width / kPack<T>;
  const auto* x = reinterpret_cast<const uint4*>(static_cast<const T*>(p.x) + blockIdx.x * p.x_stride);
  auto* residual = reinterpret_cast<uint4*>(static_cast<T*>(p.residual) + blockIdx.x * p.residual_stride);
  auto* out = reinterpret_cast<uint4*>(static_cast<T*>(p.out) + blockIdx.x * p.out_stride);
  const uint4* summed = p.residual ? residual : x;

  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    uint4 pack = x[i];
    float value[8];
    unpack8<T>(pack, value);
    if (p.residual) {
      float old[8];
      unpack8<T>(residual[i], old);
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] += old[j];
      pack = pack8<T>(value);
      residual[i] = pack;
      unpack8<T>(pack, value);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sum += value[j];
      squares += value[j] * value[j];
    }
  }
  float mean = 0;
  if (p.centred) {
    mean = block_sum(sum, scratch) / p.width;
    squares = 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
      float value[8];
      unpack8<T>(summed[i], value);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += (value[j] - mean) * (value[j] - mean);
    }
  }
  const float scale = rsqrtf(block_sum(squares, scratch) / p.width + p.eps);

  const auto* weight = static_cast<const uint4*>(p.weight);
  const auto* bias = static_cast<const uint4*>(p.bias);
  for (int i = threadIdx.x; i < packs; i += blockDim.x) {
    float value[8], factor[8], shift[8];
    unpack8<T>(summed[i], value);
    if (weight) unpack8<T>(weight[i], factor);
    if (bias) unpack8<T>(bias[i], shift);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      value[j] = (value[j] - mean) * scale;
      if (weight) value[j] *= factor[j];
      if (bias) value[j] += shift[j];
    }
    out[i] = pack8<T>(value);
  }
}

// A warp for each head, with eight elements in a lane.
template <typename T>
__global__ void __launch_bounds__(kHeadWarps* kWarp) normalise_each_head(NormHeads p) {
  const int64_t head = int64_t{blockIdx.x} * kHeadWarps + threadIdx.x / kWarp;
  const int element = threadIdx.x % kWarp * 8;
  const bool valid = head < p.tokens * p.heads && element < p.dim;
  const int64_t token = head / p.heads, number = head % p.heads;
  float factor[8], value[8] = {}, sum = 0, squares = 0;
  if (valid)
    unpack8<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(p.weight) + number * p.dim + element), factor);
  auto* x = reinterpret_cast<uint4*>(static_cast<T*>(p.x) + token * p.stride + number * p.dim + element);
  wait_for_predecessor();
  release_successor();
  if (valid) unpack8<T>(*x, value);
  if (p.centred) {
#pragma unroll
    for (const float each : value) sum += each;
    sum = warp_sum(sum) / p.dim;
  }
#pragma unroll
  for (float& each : value) {
    if (valid) each -= sum;
    squares += each * each;
  }
  const float scale = rsqrtf(warp_sum(squares) / p.dim + p.eps);
  if (!valid) return;
#pragma unroll
  for (int j = 0; j < 8; ++j) value[j] *= scale * factor[j];
  *x = pack8<T>(value);
}

void check(const NormRows& p) {
  require(p.x && p.out, kName, "null pointer");
  for (const void* pointer :
       {p.x, static_cast<const void*>(p.residual), p.weight, p.bias, static_cast<const void*>(p.out)})
    require(aligned(pointer, 16), kName, "misaligned pointer");
  require(p.width > 0 && p.width % 8 == 0, kName, "the width must be a multiple of 8");
  require(p.x_stride % 8 == 0 && p.residual_stride % 8 == 0 && p.out_stride % 8 == 0, kName, "misaligned rows");
  require(p.rows <= INT32_MAX, kName, "too many rows");
}

}  // namespace

void normalise(const NormRows& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p);
  const int packs = p.width / 8;
  const unsigned threads = std::min(kMaxThreads, (packs + kWarp - 1) / kWarp * kWarp);
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, normalise_rows<decltype(element)>, {dim3(static_cast<unsigned>(p.rows)), threads}, stream, p);
  });
}

void normalise_heads(const NormHeads& p, cudaStream_t stream) {
  if (p.tokens <= 0 || p.heads <= 0) return;
  require(p.x && p.weight, kName, "null pointer");
  require(aligned(p.x, 16) && aligned(p.weight, 16) && p.stride % 8 == 0, kName, "misaligned heads");
  require(p.dim > 0 && p.dim % 8 == 0 && p.dim <= kMaxNormedDim, kName, "unsupported size of heads");
  const int64_t blocks = (p.tokens * p.heads + kHeadWarps - 1) / kHeadWarps;
  require(blocks <= INT32_MAX, kName, "too many heads");
  with_half_type(p.type, kName, [&](auto element) {
    launch(kName, normalise_each_head<decltype(element)>, {dim3(static_cast<unsigned>(blocks)), kHeadWarps * kWarp},
           stream, p);
  });
}

}  // namespace constrain::cuda
