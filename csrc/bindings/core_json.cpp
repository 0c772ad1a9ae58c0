// Python objects as JSON values.
#include "bindings/core.h"
#include "engine/errors.h"

namespace constrain {

namespace {

constexpr size_t kMaxNesting = 512;

std::string escaped(const std::string& token) {
  std::string out;
  for (const char c : token) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::string text_of(const py::handle& object, const std::string& pointer) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (data) return {data, static_cast<size_t>(size)};
  PyErr_Clear();
  throw SchemaError(SchemaError::Kind::invalid, {pointer}, "",
                    "a string holds a lone surrogate, which no UTF-8 text can spell");
}

json::Value convert(const py::handle& object, const std::string& pointer, size_t depth) {
  using Type = json::Value::Type;
  if (depth > kMaxNesting) throw ResourceLimit("max_nesting", kMaxNesting, "at #" + pointer);
  json::Value value;
  if (object.is_none()) return value;
  if (PyBool_Check(object.ptr())) {
    value.type = Type::boolean;
    value.boolean = object.ptr() == Py_True;
  } else if (PyUnicode_Check(object.ptr())) {
    value.type = Type::string;
    value.text = text_of(object, pointer);
  } else if (PyLong_Check(object.ptr())) {
    value.type = Type::number;
    value.text = py::str(object);
  } else if (PyFloat_Check(object.ptr())) {
    value.type = Type::number;
    const double number = PyFloat_AS_DOUBLE(object.ptr());
    if (number != number || number - number != 0) {
      throw SchemaError(SchemaError::Kind::invalid, {pointer}, "", "NaN and infinity are no JSON numbers");
    }
    value.text = py::repr(object);
  } else if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    value.type = Type::array;
    size_t index = 0;
    for (const py::handle& item : object) {
      value.items.push_back(convert(item, pointer + "/" + std::to_string(index), depth + 1));
      ++index;
    }
  } else if (py::isinstance<py::dict>(object)) {
    value.type = Type::object;
    for (const auto& [key, member] : py::reinterpret_borrow<py::dict>(object)) {
      if (!PyUnicode_Check(key.ptr()))
        throw SchemaError(SchemaError::Kind::invalid, {pointer}, "", "a key is not a string");
      std::string name = text_of(key, pointer);
      json::Value converted = convert(member, pointer + "/" + escaped(name), depth + 1);
      value.members.emplace_back(std::move(name), std::move(converted));
    }
  } else {
    throw SchemaError(
        SchemaError::Kind::invalid, {pointer}, "",
        "a value of type " + std::string(py::str(py::type::of(object).attr("__name__"))) + " is not JSON");
  }
  return value;
}

}  // namespace

json::Value to_json(const py::handle& object) { return convert(object, "", 0); }

}  // namespace constrain
