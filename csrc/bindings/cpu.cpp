// The Python module `constrain._cpu`: products on the CPU.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <vector>

#include "cpu/grouped_product.h"
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
    share(product, block_product());
  }

  void grouped_product(uintptr_t x, uintptr_t words, uintptr_t scales, uintptr_t zeros, uintptr_t out, uintptr_t groups,
                       size_t group_count, size_t rows, size_t inputs, size_t blocks, size_t block_words,
                       int scale_type) {
    GroupedProduct product{reinterpret_cast<const float*>(x),
                           reinterpret_cast<const uint32_t*>(words),
                           reinterpret_cast<const void*>(scales),
                           reinterpret_cast<const int8_t*>(zeros),
                           nullptr,
                           reinterpret_cast<float*>(out),
                           reinterpret_cast<const Group*>(groups),
                           group_count,
                           rows,
                           inputs,
                           blocks,
                           block_words,
                           static_cast<Scales>(scale_type)};
    std::vector<float> sums(product.zeros != nullptr ? rows * group_count : 0);
    if (product.zeros != nullptr) sum_groups(product, sums.data());
    product.sums = sums.data();
    share(product, grouped_blocks());
  }

 private:
  /// Divides the blocks of a product.
  template <class Product, class Compute>
  void share(const Product& product, Compute compute) {
    const size_t blocks = product.blocks;
    const size_t work = product.rows * product.inputs * blocks * kBlock;
    const size_t pieces = alone_ ? 1 : std::clamp<size_t>(work / kPiece, 1, std::max<size_t>(blocks, 1));
    if (pieces == 1) return compute(product, 0, blocks);
    const auto piece = [&](size_t i) { compute(product, blocks * i / pieces, blocks * (i + 1) / pieces); };
    workers_.start(pieces, piece)->finish();
  }

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

Writes float32 ``[rows, outputs]``, where ``outputs`` is ``blocks * BLOCK``. All are contiguous.)")
      .def("grouped_product", &Pool::grouped_product, "x"_a, "words"_a, "scales"_a, "zeros"_a, "out"_a, "groups"_a,
           "group_count"_a, "rows"_a, "inputs"_a, "blocks"_a, "block_words"_a, "scale_type"_a,
           py::call_guard<py::gil_scoped_release>(),
           R"(Multiplies float32 rows ``[rows, inputs]`` by codes in words uint32 ``[blocks, block_words, BLOCK]``.

Groups are int32 ``[group_count, 2]``: bits of a code (104 and 108 are floats of four and of eight bits), and inputs, whose
codes fill whole words. Scales ``[blocks, group_count, BLOCK]`` are float32, float16, bfloat16 or float8, by ``scale_type``
0 to 3, and zeros int8 of the same shape, or 0 for none. Writes float32 ``[rows, blocks * BLOCK]``. All are contiguous.)");
}

}  // namespace constrain::cpu
