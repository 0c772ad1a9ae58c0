#include <pybind11/pybind11.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "bindings/cuda.h"
#include "cuda/experts/experts.cuh"
#include "cuda/experts/router.cuh"
#include "cuda/packed/packed.cuh"

namespace py = pybind11;
using py::arg;

namespace constrain::cuda {
namespace {

Scoring scoring(const std::string& name) {
  if (name == "softmax") return Scoring::softmax;
  if (name == "sigmoid") return Scoring::sigmoid;
  throw std::invalid_argument("unknown scoring " + name);
}

// Experts without their weights.
ExpertMlp experts_of(Address x, Address experts, Address weights, Address gate_up_bias, Address down_bias,
                     Address residual, Address inner, Address out, int64_t x_stride, int64_t residual_stride,
                     int64_t out_stride, int rows, int count, int chosen, int size, int width,
                     const std::string& activation, const std::string& dtype) {
  return ExpertMlp{data(x),
                   pointer<const int64_t>(experts),
                   pointer<const float>(weights),
                   nullptr,
                   data(gate_up_bias),
                   nullptr,
                   data(down_bias),
                   data(residual),
                   data(inner),
                   data(out),
                   x_stride,
                   residual_stride,
                   out_stride,
                   rows,
                   count,
                   chosen,
                   size,
                   width,
                   gate(activation),
                   float_type(dtype)};
}

}  // namespace

void bind_experts(py::module_& m) {
  m.attr("MAX_EXPERTS") = kMaxExperts;
  m.attr("MAX_CHOSEN_EXPERTS") = kMaxChosen;
  m.attr("MAX_ROUTED_ROWS") = kMaxProductRows;
  m.attr("MAX_ROUTED_EXPERTS") = kMostRouted;
  m.attr("MAX_EXPERT_ROWS") = kMaxExpertRows;
  m.attr("MAX_PACKED_EXPERT_ROWS") = kMaxPackedExpertRows;
  m.def(
      "route",
      [](Address logits, Address correction, Address experts, Address weights, int64_t stride, int rows, int count,
         int chosen, const std::string& score, bool normalised, float scale, const std::string& dtype, Address stream) {
        route(
            Routing{data(logits), pointer<const float>(correction), pointer<int64_t>(experts), pointer<float>(weights),
                    stride, rows, count, chosen, scoring(score), normalised, scale, float_type(dtype)},
            stream_of(stream));
      },
      py::kw_only(), arg("logits"), arg("correction"), arg("experts"), arg("weights"), arg("stride"), arg("rows"),
      arg("count"), arg("chosen"), arg("scoring"), arg("normalised"), arg("scale"), arg("dtype"), arg("stream"),
      "Queue the choice of experts for each row.");
  m.def(
      "route_normed",
      [](Address x, Address norm_weight, Address weight, Address bias, Address correction, Address normed,
         Address experts, Address weights, int64_t x_stride, int rows, int width, int count, int chosen,
         const std::string& score, bool normalised, float scale, float eps, Address stream) {
        const Routing routing{nullptr,
                              pointer<const float>(correction),
                              pointer<int64_t>(experts),
                              pointer<float>(weights),
                              0,
                              rows,
                              count,
                              chosen,
                              scoring(score),
                              normalised,
                              scale,
                              FloatType::bfloat16};
        route_normed(
            Router{routing, data(x), data(norm_weight), data(weight), data(bias), data(normed), x_stride, width, eps},
            stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("norm_weight"), arg("weight"), arg("bias"), arg("correction"), arg("normed"),
      arg("experts"), arg("weights"), arg("x_stride"), arg("rows"), arg("width"), arg("count"), arg("chosen"),
      arg("scoring"), arg("normalised"), arg("scale"), arg("eps"), arg("stream"),
      "Queue the norm of rows of bfloat16, and the choice of experts by the logits of a router for each.");
  m.def(
      "expert_mlp",
      [](Address x, Address experts, Address weights, Address gate_up, Address gate_up_bias, Address down,
         Address down_bias, Address residual, Address inner, Address out, int64_t x_stride, int64_t residual_stride,
         int64_t out_stride, int rows, int count, int chosen, int size, int width, const std::string& activation,
         const std::string& dtype, Address stream) {
        ExpertMlp mlp = experts_of(x, experts, weights, gate_up_bias, down_bias, residual, inner, out, x_stride,
                                   residual_stride, out_stride, rows, count, chosen, size, width, activation, dtype);
        mlp.gate_up = data(gate_up), mlp.down = data(down);
        expert_mlp(mlp, stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("experts"), arg("weights"), arg("gate_up"), arg("gate_up_bias"), arg("down"),
      arg("down_bias"), arg("residual"), arg("inner"), arg("out"), arg("x_stride"), arg("residual_stride"),
      arg("out_stride"), arg("rows"), arg("count"), arg("chosen"), arg("size"), arg("width"), arg("activation"),
      arg("dtype"), arg("stream"), "Queue the weighted sum of the MLPs of each row's experts, and a residual.");
  m.def(
      "packed_expert_mlp",
      [](Address x, Address experts, Address weights, const PackedWeight& gate_up, Address gate_up_bias,
         Address gate_up_order, const PackedWeight& down, Address down_bias, Address down_order, Address residual,
         Address inner, Address gathered, Address out, int64_t x_stride, int64_t residual_stride, int64_t out_stride,
         int rows, int count, int chosen, int size, int width, const std::string& activation, const std::string& dtype,
         Address stream) {
        const ExpertMlp mlp =
            experts_of(x, experts, weights, gate_up_bias, down_bias, residual, inner, out, x_stride, residual_stride,
                       out_stride, rows, count, chosen, size, width, activation, dtype);
        packed_expert_mlp(PackedExpertMlp{mlp, gate_up, down, pointer<const int>(gate_up_order),
                                          pointer<const int>(down_order), data(gathered)},
                          stream_of(stream));
      },
      py::kw_only(), arg("x"), arg("experts"), arg("weights"), arg("gate_up"), arg("gate_up_bias"),
      arg("gate_up_order"), arg("down"), arg("down_bias"), arg("down_order"), arg("residual"), arg("inner"),
      arg("gathered"), arg("out"), arg("x_stride"), arg("residual_stride"), arg("out_stride"), arg("rows"),
      arg("count"), arg("chosen"), arg("size"), arg("width"), arg("activation"), arg("dtype"), arg("stream"),
      "As expert_mlp, with the packed weights of all experts, and the orders of their inputs.");
}

}  // namespace constrain::cuda
