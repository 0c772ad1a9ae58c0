// Rows whose elements are gathered by a list, normalised first where a norm is given: what products take with weights
// whose inputs are in another order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/types.cuh"

namespace constrain::cuda {

// out[row][j] = norm(x[row])[order[j]]. Rows of x are `width` contiguous elements, a multiple of 8, and those of the
// result `columns`, a multiple of 2, without gaps. All pointers are aligned to 16 bytes; the stride is in elements.
struct GatherRows {
  const void* x;
  const int* order;    // each less than `width`
  const void* weight;  // of an RMS norm; null for none
  void* out;
  int64_t x_stride;
  int64_t rows;
  int width;
  int columns;
  float eps;
  FloatType type;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void gather(const GatherRows& rows, cudaStream_t stream);

}  // namespace constrain::cuda
