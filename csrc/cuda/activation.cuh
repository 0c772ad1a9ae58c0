// Gated activations.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/types.cuh"

namespace constrain::cuda {

// clamped_swiglu is the activation of gpt-oss, which clamps both halves, and adds one to the ungated half.
enum class Gate { silu, gelu_tanh, clamped_swiglu };

// act(x) * y
__device__ __forceinline__ float gated(float x, float y, Gate gate) {
  if (gate == Gate::silu) return x / (1.0f + __expf(-x)) * y;
  if (gate == Gate::clamped_swiglu) {
    constexpr float kMost = 7.0f, kSharpness = 1.702f;
    x = fminf(x, kMost);
    return x / (1.0f + __expf(-kSharpness * x)) * (fminf(fmaxf(y, -kMost), kMost) + 1.0f);
  }
  constexpr float kScale = 0.7978845608028654f, kCubic = 0.044715f;
  return 0.5f * x * (1.0f + tanhf(kScale * (x + kCubic * x * x * x))) * y;
}

// `gate_up` has rows of 2 * width contiguous elements, the gate first; `out` rows of `width`, a multiple of 8.
struct GatedRows {
  const void* gate_up;
  void* out;
  int64_t rows;
  int width;
  Gate gate;
  FloatType type;
};

// Queues out = act(gate) * up. Throws std::invalid_argument where the arguments cannot be right, std::runtime_error
// where CUDA refuses the launch.
void gated_activation(const GatedRows& rows, cudaStream_t stream);

}  // namespace constrain::cuda
