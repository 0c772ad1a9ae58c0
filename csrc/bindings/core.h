// What the parts of the `_core` module share.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/json/value.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/schema/compile.h"

namespace constrain {

namespace py = pybind11;

/// Lists of productions under construction; defined with the context-free front end.
void bind_cfg(py::module_& module);
void bind_regular(py::module_& module);
void bind_errors(py::module_& module);
void bind_vocabulary(py::module_& module);
void bind_grammar(py::module_& module);
void bind_matcher(py::module_& module);
void bind_workers(py::module_& module);
void bind_ids(py::module_& module);

/// A compiled grammar with what its front end has to say of it.
struct PyGrammar {
  std::shared_ptr<const CompiledGrammar> grammar;
  schema::Report report;
};

/// Makes rules ready to run over a vocabulary, whose decoder may drop a leading space.
PyGrammar finish(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits,
                 schema::Report report = {});

/// A Python object of JSON types as a value. Throws SchemaError naming the place of anything else, and ResourceLimit.
json::Value to_json(const py::handle& object, const Limits& limits);

/// Options of a schema. `retrieve` is asked for the documents that it refers to; it and `limits` must outlive them.
schema::Options schema_options(const py::object& whitespace, bool in_order, bool lenient, const Limits& limits,
                               std::map<std::string, std::string> sources, const py::function& retrieve);

/// One row of a packed bitmask that belongs to Python: a buffer of int32, or a CPU tensor.
class MaskRow {
 public:
  /// Raises BitmaskError where the object, its shape or the row does not fit.
  MaskRow(const py::object& bits, Py_ssize_t row, size_t words);
  ~MaskRow();
  MaskRow(const MaskRow&) = delete;
  MaskRow& operator=(const MaskRow&) = delete;

  uint32_t* data() const { return data_; }
  size_t words() const { return words_; }

 private:
  void place(void* data, const std::vector<Py_ssize_t>& shape, Py_ssize_t row, size_t words);

  Py_buffer buffer_{};
  uint32_t* data_ = nullptr;
  size_t words_ = 0;
};

}  // namespace constrain
