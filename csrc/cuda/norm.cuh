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

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void normalise(const NormRows& rows, cudaStream_t stream);

}  // namespace constrain::cuda
