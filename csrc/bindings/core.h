// Declarations shared by the sources of the `_core` module.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/json/value.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/schema/compile.h"

namespace constrain {

namespace py = pybind11;

/// Binds the context-free front end.
void bind_cfg(py::module_& module);
void bind_regular(py::module_& module);
void bind_errors(py::module_& module);
void bind_vocabulary(py::module_& module);
void bind_grammar(py::module_& module);
void bind_matcher(py::module_& module);
void bind_workers(py::module_& module);
void bind_ids(py::module_& module);
void bind_words(py::module_& module);

/// A compiled grammar with the report of its front end.
struct PyGrammar {
  std::shared_ptr<const CompiledGrammar> grammar;
  std::function<schema::Report()> report;  ///< makes the report
};

/// Compiles rules for a vocabulary, whose decoder may drop a leading space.
PyGrammar finish(
    Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits,
    std::function<schema::Report()> report = [] { return schema::Report(); });

/// Converts a Python object of JSON types. Throws SchemaError with the place of any other object, and ResourceLimit.
json::Tree to_json(const py::handle& object, const Limits& limits);

/// Collects the options of a schema. `retrieve` returns the documents that it refers to; it and `limits` must outlive
/// the result.
schema::Options schema_options(const py::object& whitespace, bool in_order, bool plain_integers, bool lenient,
                               bool asserts_formats, const Limits& limits, std::map<std::string, std::string> sources,
                               const py::function& retrieve);

/// One row of a packed bitmask owned by Python: a buffer of int32, or a CPU tensor.
class MaskRow {
 public:
  /// Raises BitmaskError if the object, its shape or the row does not fit.
  MaskRow(const py::object& bits, Py_ssize_t row, size_t words);
  ~MaskRow();
  MaskRow(const MaskRow&) = delete;
  MaskRow& operator=(const MaskRow&) = delete;

  uint32_t* data() const { return data_; }
  size_t words() const { return words_; }

 private:
  MaskRow() = default;  // a constructor that has called this one runs the destructor when it throws
  void place(void* data, const std::vector<Py_ssize_t>& shape, Py_ssize_t row, size_t words);

  Py_buffer buffer_{};
  uint32_t* data_ = nullptr;
  size_t words_ = 0;
};

}  // namespace constrain
