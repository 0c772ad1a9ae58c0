// Norm, router and choice of experts in one kernel, for a few rows, where launches take longer than the work.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/experts/experts.cuh"
#include "cuda/linear/product.cuh"

namespace constrain::cuda {

constexpr int kMostRouted = 128;  // experts

// normed = x / sqrt(mean(x**2) + eps) * norm_weight, and `routing` of the logits normed @ weight.T + bias, rounded to
// bfloat16, whose own logits are not read.
//
// `x` is (rows, width) with contiguous rows, `normed` likewise without gaps, `weight` (count, width), all bfloat16 and
// aligned to 16 bytes; `bias` (count) or null. There are at most kMaxProductRows rows and kMostRouted experts.
struct Router {
  Routing routing;
  const void* x;
  const void* norm_weight;
  const void* weight;
  const void* bias;
  void* normed;
  int64_t x_stride;
  int width;
  float eps;
};

// Needs compute capability 9.0. Throws as `route` does.
void route_normed(const Router& p, cudaStream_t stream);

}  // namespace constrain::cuda
