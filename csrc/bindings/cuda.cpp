// The module constrain._cuda. Tensors arrive as addresses, shapes and strides, which the Python layer has checked, and
// the stream as its handle, so that one build serves every version of torch.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cuda/bitmask.cuh"

namespace py = pybind11;
using constrain::cuda::BitmaskView;
using constrain::cuda::FloatType;
using constrain::cuda::LogitsView;

namespace {

FloatType float_type(const std::string& name) {
  if (name == "float32") return FloatType::float32;
  if (name == "float16") return FloatType::float16;
  if (name == "bfloat16") return FloatType::bfloat16;
  throw std::invalid_argument("unknown floating point type " + name);
}

void apply_bitmask(uintptr_t logits, const std::string& dtype, int64_t logits_stride, uintptr_t bits,
                   int64_t bits_stride, int64_t rows, int64_t width, uintptr_t stream) {
  constrain::cuda::apply_bitmask(
      LogitsView{reinterpret_cast<void*>(logits), float_type(dtype), logits_stride, rows, width},
      BitmaskView{reinterpret_cast<const int32_t*>(bits), bits_stride}, reinterpret_cast<cudaStream_t>(stream));
}

}  // namespace

PYBIND11_MODULE(_cuda, m) {
  m.doc() = "CUDA kernels of constrain.";
  m.def("apply_bitmask", &apply_bitmask, py::kw_only(), py::arg("logits"), py::arg("dtype"), py::arg("logits_stride"),
        py::arg("bits"), py::arg("bits_stride"), py::arg("rows"), py::arg("width"), py::arg("stream"),
        "Queue on `stream`: logits whose bit is clear become -inf.");
}
