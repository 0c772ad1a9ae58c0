// Python objects as JSON values.
#include <cmath>

#include "bindings/core.h"
#include "engine/base/errors.h"
#include "engine/schema/steps.h"

namespace constrain {

namespace {

/// A path from the root to a value, written out only in errors.
struct Path {
  const Path* parent = nullptr;
  std::string_view name = {};  ///< of a member
  bool is_member = false;
  size_t index = 0;  ///< of an item
  size_t depth = 0;

  Place place() const {
    if (!parent) return {};
    Place place = parent->place();
    place.pointer += "/" + (is_member ? schema::escape_token(name) : std::to_string(index));
    return place;
  }
  [[noreturn]] void invalid(const std::string& reason) const {
    throw SchemaError(SchemaError::Kind::invalid, place(), "", reason);
  }
};

class Converter {
 public:
  Converter(const Limits& limits, Arena& memory) : limits_(limits), memory_(memory) {}

  json::Value convert(const py::handle& object, const Path& path) {
    using Type = json::Value::Type;
    if (path.depth > limits_.max_nesting) exceeded("max_nesting", limits_.max_nesting, path);
    spend(2, path);  // brackets, quotation marks, or a separator
    json::Value value;
    if (object.is_none()) return value;
    if (PyBool_Check(object.ptr())) {
      value.type = Type::boolean;
      value.boolean = object.ptr() == Py_True;
    } else if (PyUnicode_Check(object.ptr())) {
      value.type = Type::string;
      value.text = text(object, path);
    } else if (PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr())) {
      value.type = Type::number;
      value.text = number(object, path);
    } else if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
      value.type = Type::array;
      convert_items(py::reinterpret_borrow<py::sequence>(object), path, value);
    } else if (PyDict_Check(object.ptr())) {
      value.type = Type::object;
      convert_members(py::reinterpret_borrow<py::dict>(object), path, value);
    } else {
      path.invalid("a value of type " + std::string(py::str(py::type::of(object).attr("__name__"))) + " is not JSON");
    }
    return value;
  }

 private:
  // Subclasses of list may run code that changes any list or dict: no more is read than there is room for.
  void convert_items(const py::sequence& items, const Path& path, json::Value& value) {
    const size_t size = items.size();
    auto* converted = memory_.allocate<json::Value>(size);
    for (size_t i = 0; i < size; ++i) {
      const py::object item = items[i];
      new (converted + i) json::Value(convert(item, {.parent = &path, .index = i, .depth = path.depth + 1}));
    }
    value.items = {converted, size};
  }

  void convert_members(const py::dict& members, const Path& path, json::Value& value) {
    const size_t size = members.size();
    auto* converted = memory_.allocate<json::Value::Member>(size);
    size_t count = 0;
    for (const auto& [key, member] : members) {
      if (count == size) break;
      if (!PyUnicode_Check(key.ptr())) path.invalid("a key is not a string");
      const std::string_view name = text(key, path);
      const Path below{.parent = &path, .name = name, .is_member = true, .depth = path.depth + 1};
      new (converted + count++) json::Value::Member(name, convert(member, below));
    }
    value.members = {converted, count};
  }

  std::string_view text(const py::handle& object, const Path& path) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (!data) {
      PyErr_Clear();
      path.invalid("a string holds a lone surrogate, which no UTF-8 text can spell");
    }
    spend(static_cast<uint64_t>(size), path);
    auto* copy = memory_.allocate<char>(static_cast<size_t>(size));
    return {copy, static_cast<size_t>(std::copy_n(data, size, copy) - copy)};
  }

  std::string_view number(const py::handle& object, const Path& path) {
    const bool is_float = PyFloat_Check(object.ptr());
    if (is_float && !std::isfinite(PyFloat_AS_DOUBLE(object.ptr())))
      path.invalid("NaN and infinity are no JSON numbers");
    // The base class prints JSON, whatever a subclass prints.
    const auto printed = py::reinterpret_steal<py::object>(is_float ? PyFloat_Type.tp_repr(object.ptr())
                                                                    : PyLong_Type.tp_repr(object.ptr()));
    if (!printed) {
      PyErr_Clear();
      path.invalid("an integer has too many digits");
    }
    return text(printed, path);
  }

  void spend(uint64_t bytes, const Path& path) {
    bytes_ += bytes;
    if (bytes_ > limits_.max_bytes) exceeded("max_bytes", limits_.max_bytes, path);
  }

  [[noreturn]] static void exceeded(const char* kind, uint64_t limit, const Path& path) {
    ResourceLimit error(kind, limit, "by the text of the schema");
    error.place = path.place();
    throw error;
  }

  const Limits& limits_;
  Arena& memory_;
  uint64_t bytes_ = 0;
};

}  // namespace

json::Tree to_json(const py::handle& object, const Limits& limits) {
  json::Tree tree;
  tree.root = Converter(limits, tree.memory).convert(object, {});
  return tree;
}

}  // namespace constrain
