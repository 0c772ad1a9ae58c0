// RMS norm and layer norm of rows, with the sum of a residual stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/types.cuh"

namespace constrain::cuda {

// Rows of `width` contiguous elements, a multiple of 8, all pointers aligned to 16 bytes; strides are in elements.
// With `residual`, it becomes residual + x, rounded, and the sum is normalised. `weight` and `bias` may be
// null. `centred` subtracts the mean first, which makes it a layer norm. `out` may be `x`.
struct NormRows {
  const void* x;
  void* residual;
  const void* weight;
  const void* bias;
  void* out;
  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int64_t rows;
  int width;
  float eps;
  bool centred;
  FloatType type;
};

// Heads of `dim` elements, a multiple of 8 and at most kMaxNormedDim, normalised in place: (tokens, heads, dim) with
// contiguous heads, tokens `stride` elements apart. `weight` is (heads, dim). Alignment and `centred` as above.
constexpr int kMaxNormedDim = 256;

struct NormHeads {
  void* x;
  const void* weight;
  int64_t stride;
  int64_t tokens;
  int heads;
  int dim;
  float eps;
  bool centred;
  FloatType type;
};

// Throw std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void normalise(const NormRows& rows, cudaStream_t stream);
void normalise_heads(const NormHeads& heads, cudaStream_t stream);

}  // namespace constrain::cuda
