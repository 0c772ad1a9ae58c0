// The Python module `constrain._cpu`: products on the CPU.
#include <pybind11/pybind11.h>

#include <algorithm>

#include "cpu/int8_product.h"
#include "engine/base/workers.h"

namespace constrain::cpu {

namespace py = pybind11;

namespace {

/// Multiplications by one row that are worth waking a thread for.
constexpr size_t kPiece = 1 << 20;

/// A pool of threads that divide the blocks of a product among themselves and the caller.
class Pool {
 public:
  explicit Pool(size_t threads) : workers_(threads - 1), alone_(threads == 1) {}

  void int8_product(uintptr_t x, uintptr_t codes, uintptr_t scales, uintptr_t out, size_t rows, size_t inputs,
                    size_t blocks) {
    const Int8Product product{reinterpret_cast<const float*>(x),
                              reinterpret_cast<const int8_t*>(codes),
                              reinterpret_cast<const float*>(scales),
                              reinterpret_cast<float*>(out),
                              rows,
                              inputs,
                              blocks};
    const BlockProduct compute = block_product();
    const size_t pieces = alone_ ? 1 : std::clamp<size_t>(rows * inputs * blocks * kBlock / kPiece, 1, blocks);
    if (pieces == 1) return compute(product, 0, blocks);
    const auto piece = [&](size_t i) { compute(product, blocks * i / pieces, blocks * (i + 1) / pieces); };
    workers_.start(pieces, piece)->finish();
  }

 private:
  Workers workers_;
  bool alone_;
};

}  // namespace

PYBIND11_MODULE(_cpu, module) {
  using namespace py::literals;
  module.doc() = "Products on the CPU, for constrain.kernels; tensors are given by their addresses.";
  module.attr("BLOCK") = kBlock;
  module.def("supported", [] { return block_product() != nullptr; }, "Whether the processor has the instructions.");
  py::class_<Pool>(module, "Pool", "A pool of threads, the caller among them.")
      .def(py::init<size_t>(), "threads"_a)
      .def(
          "int8_product", &Pool::int8_product, "x"_a, "codes"_a, "scales"_a, "out"_a, "rows"_a, "inputs"_a, "blocks"_a,
          py::call_guard<py::gil_scoped_release>(),
          R"(Multiplies float32 rows ``[rows, inputs]`` by int8 codes ``[blocks, inputs, BLOCK]`` with scales ``[outputs]``.

Writes float32 ``[rows, outputs]``, where ``outputs`` is ``blocks * BLOCK``. All are contiguous.)");
}

}  // namespace constrain::cpu
