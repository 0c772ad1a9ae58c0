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
  const std::string* name = nullptr;  ///< of a member
  size_t index = 0;                   ///< of an item
  size_t depth = 0;

  Place place() const {
    if (!parent) return {};
    Place place = parent->place();
    place.pointer += "/" + (name ? schema::escape_token(*name) : std::to_string(index));
    return place;
  }
  [[noreturn]] void invalid(const std::string& reason) const {
    throw SchemaError(SchemaError::Kind::invalid, place(), "", reason);
  }
};

class Converter {
 public:
  explicit Converter(const Limits& limits) : limits_(limits) {}

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
  void convert_items(const py::sequence& items, const Path& path, json::Value& value) {
    value.items.reserve(items.size());
    for (const py::handle& item : items) {
      value.items.push_back(convert(item, {&path, nullptr, value.items.size(), path.depth + 1}));
    }
  }

  void convert_members(const py::dict& members, const Path& path, json::Value& value) {
    value.members.reserve(members.size());
    for (const auto& [key, member] : members) {
      if (!PyUnicode_Check(key.ptr())) path.invalid("a key is not a string");
      std::string name = text(key, path);
      json::Value converted = convert(member, {&path, &name, 0, path.depth + 1});
      value.members.emplace_back(std::move(name), std::move(converted));
    }
  }

  std::string text(const py::handle& object, const Path& path) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (!data) {
      PyErr_Clear();
      path.invalid("a string holds a lone surrogate, which no UTF-8 text can spell");
    }
    spend(static_cast<uint64_t>(size), path);
    return {data, static_cast<size_t>(size)};
  }

  std::string number(const py::handle& object, const Path& path) {
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
  uint64_t bytes_ = 0;
};

}  // namespace

json::Value to_json(const py::handle& object, const Limits& limits) { return Converter(limits).convert(object, {}); }

}  // namespace constrain
