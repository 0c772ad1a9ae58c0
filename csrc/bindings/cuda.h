// The module constrain._cuda. Tensors are passed as addresses, shapes and strides, which the Python layer has checked,
// and the stream as its handle: nothing depends on libtorch, so one build serves every version of torch.
#pragma once

#include <cuda_runtime.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda/activation.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

// Address of a tensor's first element; 0 for no tensor.
using Address = uintptr_t;

template <typename T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}

inline void* data(Address address) { return pointer<void>(address); }

inline cudaStream_t stream_of(Address handle) { return reinterpret_cast<cudaStream_t>(handle); }

inline FloatType float_type(const std::string& name) {
  if (name == "float32") return FloatType::float32;
  if (name == "float16") return FloatType::float16;
  if (name == "bfloat16") return FloatType::bfloat16;
  throw std::invalid_argument("unknown floating point type " + name);
}

inline Gate gate(const std::string& name) {
  if (name == "silu") return Gate::silu;
  if (name == "gelu_pytorch_tanh") return Gate::gelu_tanh;
  if (name == "clamped_swiglu") return Gate::clamped_swiglu;
  throw std::invalid_argument("unknown activation " + name);
}

// Adds the products with packed weights to the module.
void bind_packed(pybind11::module_& m);

// Adds mixtures of experts.
void bind_experts(pybind11::module_& m);

// Adds the sums over several GPUs.
void bind_peers(pybind11::module_& m);

}  // namespace constrain::cuda
