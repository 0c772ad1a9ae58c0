// The choice of a row's experts by one warp.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "cuda/experts/experts.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {

// Maps floats to integers above 0 in the same order. NaNs count as larger or smaller than all numbers, by their sign.
__device__ __forceinline__ uint32_t order_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return max(bits >> 31 ? ~bits : bits | 0x80000000u, 1u);
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

template <int kEach>
__device__ __forceinline__ void softmax(float (&x)[kEach]) {
  float most = -FLT_MAX, sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, x[i]);
  most = warp_max(most);
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += x[i] = expf(x[i] - most);
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] /= sum;
}

// Chooses for a row, whose logits `logit` returns by their number. A lane has kEach neighbouring experts, so that of
// equal scores the first one wins.
template <int kEach, typename Logit>
__device__ __forceinline__ void choose_experts(const Routing& p, int row, Logit logit) {
  const int lane = threadIdx.x % kWarp, first = lane * kEach;
  float score[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) score[i] = first + i < p.count ? logit(first + i) : -INFINITY;
  if (p.scoring == Scoring::softmax) {
    softmax(score);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) score[i] = 1.0f / (1.0f + expf(-score[i]));
  }
  uint32_t rank[kEach];  // 0 beyond the last expert, and for experts that are already chosen
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool valid = first + i < p.count;
    rank[i] = valid ? order_of(p.correction ? score[i] + p.correction[first + i] : score[i]) : 0;
  }

  float weight = 0, total = 0;  // the weight and the expert of the lane's choice
  int expert = 0;
  for (int j = 0; j < p.chosen; ++j) {
    uint32_t best = 0;
    float best_score = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (rank[i] > best) best = rank[i], best_score = score[i], at = i;
    }
    const int winner = __ffs(__ballot_sync(kAllLanes, best == __reduce_max_sync(kAllLanes, best))) - 1;
    if (lane == winner) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) rank[i] = i == at ? 0 : rank[i];
    }
    const float found = __shfl_sync(kAllLanes, best_score, winner);
    const int found_expert = __shfl_sync(kAllLanes, first + at, winner);
    if (lane == j) weight = found, expert = found_expert;
    total += found;
  }
  if (lane < p.chosen) {
    p.experts[row * p.chosen + lane] = expert;
    p.weights[row * p.chosen + lane] = (p.normalised ? weight / total : weight) * p.scale;
  }
}

}  // namespace constrain::cuda
