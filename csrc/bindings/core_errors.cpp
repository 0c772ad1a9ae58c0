// Engine errors as the exceptions of `constrain.errors`.
#include "bindings/core.h"
#include "engine/base/errors.h"

namespace constrain {

namespace {

void raise(const char* name, const py::tuple& arguments) {
  const py::object type = py::module_::import("constrain.errors").attr(name);
  PyErr_SetObject(type.ptr(), type(*arguments).ptr());
}

/// The text of an error, which may quote bytes that are no UTF-8, such as those of a percent-encoded reference.
py::str text(std::string_view bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

const char* name_of(SchemaError::Kind kind) {
  switch (kind) {
    case SchemaError::Kind::unsupported:
      return "UnsupportedSchema";
    case SchemaError::Kind::unsatisfiable:
      return "UnsatisfiableSchema";
    default:
      return "SchemaError";
  }
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const SchemaError& error) {
      const py::object keyword = error.keyword.empty() ? py::object(py::none()) : py::object(text(error.keyword));
      raise(name_of(error.kind),
            py::make_tuple(text(error.what()), text(error.place.pointer), keyword, text(error.place.document)));
    } catch (const RegexError& error) {
      raise("RegexError", py::make_tuple(text(error.what()), error.offset));
    } catch (const ResourceLimit& error) {
      const py::object pointer = error.place ? py::object(text(error.place->pointer)) : py::object(py::none());
      raise("ResourceLimit", py::make_tuple(error.kind, error.limit, text(error.where), pointer,
                                            text(error.place ? error.place->document : "")));
    } catch (const EmptyLanguage& error) {
      raise("UnsatisfiableSchema", py::make_tuple(text(error.what())));
    } catch (const VocabularyError& error) {
      raise("VocabularyError", py::make_tuple(text(error.what())));
    } catch (const BudgetError& error) {
      raise("BudgetError", py::make_tuple(error.budget, error.needed));
    } catch (const GrammarError& error) {
      raise("GrammarError", py::make_tuple(text(error.what())));
    }
  });
}

}  // namespace constrain
