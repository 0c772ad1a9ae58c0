// Products of a few rows with a weight matrix, bound by how fast the weights can be read.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/activation.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

constexpr int kMaxProductRows = 8;  // as a tensor core's product takes them
constexpr int kMaxRank = 256;

// Adds up @ down to a weight (LoRA, Hu et al. 2021). `down` is (rank, inputs) and `up` (weight rows, rank), both stored
// as the weight is; `rank` is a multiple of 8, at most kMaxRank, or 0 for no update.
struct LowRank {
  const void* down;
  const void* up;
  float* projected;  // scratch: `projected_floats` of them
  int* signals;      // scratch: two, zero before and after each launch
  int rank;
};

// out = x @ weight.T + bias + residual. `x` is (rows, inputs), `weight` (outputs, inputs) with contiguous rows one
// after the other, `bias` (outputs) or null, `residual` and `out` (rows, outputs), the former or null; `out` may be
// `residual`. Strides are in elements. `inputs` is a multiple of 8, pointers and rows are aligned to 16 bytes, and
// there are at most kMaxProductRows rows.
//
// With a `norm_weight` (inputs), the rows of `x` are RMS-normalised first: x / sqrt(mean(x**2) + eps) * norm_weight.
// The root is applied to the sums, so that no row has to be read in full beforehand; x * norm_weight must not
// overflow.
//
// Gated: `weight` (and `bias`) has 2 * outputs rows, the gate first, and out = act(x @ gate.T) * (x @ up.T).
//
// Launches that share scratch memory must be on one stream.
struct Product {
  const void* x;
  const void* norm_weight;
  const void* weight;
  const void* bias;
  const void* residual;
  void* out;
  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int rows;
  int inputs;
  int outputs;
  float eps;
  bool gated;
  Gate gate;
  FloatType type;
  LowRank update;
};

// Throws std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void product(const Product& product, cudaStream_t stream);

// Queues x @ down.T for any number of rows. Reads `x`, `rows`, `inputs`, `type` and the update.
void project_rows(const Product& p, cudaStream_t stream);

// Queues out = base + projected @ up.T + residual, or where gated its activation. `base` has contiguous rows and may be
// `out`; `inputs` are those of the projection.
void add_projected(const Product& p, const void* base, cudaStream_t stream);

// Size of the scratch memory of an update.
int64_t projected_floats(int rows, int inputs, int rank);

}  // namespace constrain::cuda
