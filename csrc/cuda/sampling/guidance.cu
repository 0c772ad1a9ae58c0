#include <cmath>

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling/guidance.cuh"

namespace constrain::cuda {
namespace {

constexpr int kGuidanceThreads = 1024;
constexpr int kBiasThreads = 256;
constexpr int kBiasPerThread = 4;
constexpr int kMaxGridRows = 65535;

// The logarithm of the sum of the exponentials of a row, in every thread.
__device__ float log_sum_exp(const float* row, int width, float* scratch) {
  float top = -INFINITY;
  for (int i = threadIdx.x; i < width; i += kGuidanceThreads) top = fmaxf(top, row[i]);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, offset));
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = top;
  __syncthreads();
  for (int w = 0; w < kGuidanceThreads / kWarp; ++w) top = fmaxf(top, scratch[w]);
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += kGuidanceThreads) sum += expf(row[i] - top);
  return top + logf(block_sum(sum, scratch));
}

__global__ void __launch_bounds__(kGuidanceThreads) guide_rows(Guidance p) {
  __shared__ float scratch[kWarp];
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x, partner = p.partner[r];
  if (partner < 0) return;
  float* row = p.logits + r * p.stride;
  const float* other = p.logits + partner * p.stride;
  const float scale = p.scale[r];
  const float norm = log_sum_exp(row, p.width, scratch), other_norm = log_sum_exp(other, p.width, scratch);
  for (int i = threadIdx.x; i < p.width; i += kGuidanceThreads)
    row[i] = scale * (row[i] - norm) + (1 - scale) * (other[i] - other_norm);
}

__global__ void __launch_bounds__(kBiasThreads) add_rows(Bias p) {
  wait_for_predecessor();
  release_successor();
  const int first = blockIdx.x * kBiasThreads * kBiasPerThread + threadIdx.x;
  for (int r = blockIdx.y; r < p.rows; r += gridDim.y) {
    const int chosen = p.chosen[r];
    if (chosen < 0) continue;
    for (int i = 0; i < kBiasPerThread; ++i) {
      const int token = first + i * kBiasThreads;
      if (token < p.width) p.logits[r * p.stride + token] += p.pool[chosen * p.pool_stride + token];
    }
  }
}

}  // namespace

void apply_guidance(const Guidance& p, cudaStream_t stream) {
  constexpr const char* kName = "apply_guidance";
  if (p.rows <= 0) return;
  require(p.logits && p.partner && p.scale, kName, "null pointer");
  require(p.width > 0 && p.width <= INT32_MAX - kGuidanceThreads, kName, "width out of range");
  launch(kName, guide_rows, {dim3(p.rows), kGuidanceThreads}, stream, p);
}

void add_bias(const Bias& p, cudaStream_t stream) {
  constexpr const char* kName = "add_bias";
  constexpr int kTokens = kBiasThreads * kBiasPerThread;
  if (p.rows <= 0) return;
  require(p.logits && p.pool && p.chosen, kName, "null pointer");
  require(p.width > 0 && p.width <= INT32_MAX - kTokens, kName, "width out of range");
  const dim3 grid((p.width + kTokens - 1) / kTokens, p.rows < kMaxGridRows ? p.rows : kMaxGridRows);
  launch(kName, add_rows, {grid, kBiasThreads}, stream, p);
}

}  // namespace constrain::cuda
