// The Python module `constrain._cpu`: products on the CPU.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/attention.h"
#include "cpu/grouped_product.h"
#include "cpu/int8_product.h"
#include "engine/base/workers.h"

namespace constrain::cpu {

namespace py = pybind11;

namespace {

/// Multiplications that are worth waking a thread for.
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
    share(product, product.blocks, product.rows * inputs * blocks * kBlock, block_product());
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
    share(product, blocks, rows * inputs * blocks * kBlock, grouped_blocks());
  }

  void paged_attention(uintptr_t qkv, uintptr_t keys, uintptr_t values, uintptr_t out, uintptr_t cos, uintptr_t sin,
                       uintptr_t block_tables, uintptr_t lengths, size_t tokens, size_t heads, size_t kv_heads,
                       size_t dim, size_t rotary_dim, size_t page_size, size_t table_width, size_t window,
                       float scale) {
    const auto queries = std::make_unique_for_overwrite<float[]>(tokens * heads * dim);
    const PagedAttention attention{reinterpret_cast<const float*>(qkv),
                                   queries.get(),
                                   reinterpret_cast<float*>(keys),
                                   reinterpret_cast<float*>(values),
                                   reinterpret_cast<float*>(out),
                                   reinterpret_cast<const float*>(cos),
                                   reinterpret_cast<const float*>(sin),
                                   reinterpret_cast<const int32_t*>(block_tables),
                                   reinterpret_cast<const int32_t*>(lengths),
                                   tokens,
                                   heads,
                                   kv_heads,
                                   dim,
                                   rotary_dim,
                                   page_size,
                                   table_width,
                                   window,
                                   scale};
    store_states(attention);
    size_t keys_read = 0;
    for (size_t token = 0; token < tokens; ++token) keys_read += static_cast<size_t>(attention.lengths[token]);
    share(attention, tokens * kv_heads, 2 * keys_read * heads * dim, avx2_attention);
  }

 private:
  /// Distributes `count` parts over the threads, in pieces that are worth a thread by their number of multiplications;
  /// `compute` does some consecutive parts.
  template <class Work, class Compute>
  void share(const Work& work, size_t count, size_t multiplications, Compute compute) {
    const size_t pieces = alone_ ? 1 : std::clamp<size_t>(multiplications / kPiece, 1, std::max<size_t>(count, 1));
    if (pieces == 1) return compute(work, 0, count);
    const auto piece = [&](size_t i) { compute(work, count * i / pieces, count * (i + 1) / pieces); };
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
  module.attr("HEAD_MULTIPLE") = kHeadMultiple;
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
0 to 3, and zeros int8 of the same shape, or 0 for none. Writes float32 ``[rows, blocks * BLOCK]``. All are contiguous.)")
      .def("paged_attention", &Pool::paged_attention, "qkv"_a, "keys"_a, "values"_a, "out"_a, "cos"_a, "sin"_a,
           "block_tables"_a, "lengths"_a, "tokens"_a, "heads"_a, "kv_heads"_a, "dim"_a, "rotary_dim"_a, "page_size"_a,
           "table_width"_a, "window"_a, "scale"_a, py::call_guard<py::gil_scoped_release>(),
           R"(Stores the keys and values of single tokens, and attends over the positions of their sequences.

All are contiguous. Float32: qkv ``[tokens, heads + 2 * kv_heads, dim]``, whose queries and keys are rotated first by cos
and sin ``[positions, rotary_dim]``; keys and values ``[pages, page_size, kv_heads, dim]``; out ``[tokens, heads, dim]``.
Int32: block tables ``[tokens, table_width]`` and lengths ``[tokens]``.)");
}

}  // namespace constrain::cpu
