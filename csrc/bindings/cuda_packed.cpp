#include <pybind11/pybind11.h>

#include "bindings/cuda.h"
#include "cuda/packed/packed.cuh"

namespace py = pybind11;
using py::arg;

namespace constrain::cuda {
namespace {

Codes codes_of(const std::string& name) {
  if (name == "int4") return Codes::int4;
  if (name == "int8") return Codes::int8;
  if (name == "float8") return Codes::float8;
  if (name == "float4") return Codes::float4;
  if (name == "scaled_float4") return Codes::scaled_float4;
  throw std::invalid_argument("unknown codes " + name);
}

}  // namespace

void bind_packed(py::module_& m) {
  py::class_<PackedWeight>(m, "PackedWeight", "A weight in the order of csrc/cuda/packed/packed.cuh.")
      .def(py::init([](Address records, const std::string& codes, int group, const std::string& scales, bool zeros,
                       int outputs, int inputs) {
             return PackedWeight{data(records), RecordShape{codes_of(codes), group, float_type(scales), zeros}, outputs,
                                 inputs};
           }),
           py::kw_only(), arg("records"), arg("codes"), arg("group"), arg("scales"), arg("zeros"), arg("outputs"),
           arg("inputs"))
      .def_property_readonly(
          "nbytes",
          [](const PackedWeight& weight) { return int64_t{weight.tiles()} * weight.spans() * weight.shape.bytes(); },
          "Bytes of all records.");
  m.def(
      "packed_product",
      [](Address x, Address norm_weight, const PackedWeight& weight, Address bias, Address residual, Address out,
         int64_t x_stride, int64_t residual_stride, int64_t out_stride, int rows, float eps, bool gated,
         const std::string& activation, const std::string& dtype, Address stream) {
        packed_product(
            PackedProduct{data(x), data(norm_weight), weight, data(bias), data(residual), data(out), x_stride,
                          residual_stride, out_stride, rows, eps, gated, gate(activation), float_type(dtype)},
            stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("norm_weight"), arg("weight"), arg("bias"), arg("residual"), arg("out"),
      arg("x_stride"), arg("residual_stride"), arg("out_stride"), arg("rows"), arg("eps"), arg("gated"),
      arg("activation"), arg("dtype"), arg("stream"), "Queue x @ weight.T + bias + residual, or a gated product.");
  m.def(
      "unpack_weight",
      [](const PackedWeight& weight, Address out, const std::string& dtype, Address stream) {
        unpack_weight(Unpacking{weight, data(out), float_type(dtype)}, stream_of(stream));
      },
      arg("weight"), py::kw_only(), arg("out"), arg("dtype"), arg("stream"), "Queue the dequantisation of a weight.");
}

}  // namespace constrain::cuda
