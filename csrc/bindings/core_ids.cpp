// Collections of token ids, as Python filters return them, packed into rows of a bitmask.
#include <pybind11/numpy.h>

#include <algorithm>

#include "bindings/core.h"
#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

namespace constrain {

namespace {

/// Entries of a hash table that are looked at together.
constexpr Py_ssize_t kBlock = 512;
/// Keys are prefetched this many ahead.
constexpr Py_ssize_t kAhead = 16;

/// The row of bits that is written.
class PackedRow {
 public:
  explicit PackedRow(size_t words) : array_(static_cast<py::ssize_t>(words)), limit_(words * 32) {
    bits_ = reinterpret_cast<uint32_t*>(array_.mutable_data());
    std::fill(bits_, bits_ + words, 0u);
  }

  /// Adds an id; returns false where there is no room for it, as for every negative one.
  bool add(Py_ssize_t id) {
    if (static_cast<size_t>(id) >= limit_) return false;
    bits_[id / 32] |= 1u << (id % 32);
    return true;
  }

  py::object array() const { return array_; }

 private:
  py::array_t<int32_t> array_;
  size_t limit_;
  uint32_t* bits_;
};

/// The value of an exact `int` of one digit (up to 2^30); -1 for every other object. No id is longer.
Py_ssize_t small_int(PyObject* object) {
  if (!PyLong_CheckExact(object)) return -1;
  auto* number = reinterpret_cast<PyLongObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Long_IsCompact(number) ? PyUnstable_Long_CompactValue(number) : -1;
#else
  const Py_ssize_t digits = Py_SIZE(number);
  return digits == 0 ? 0 : digits == 1 ? static_cast<Py_ssize_t>(number->ob_digit[0]) : -1;
#endif
}

/// Lists the keys among `count` entries of a set, without branches on which of them are in use; returns their number.
Py_ssize_t list_keys(const setentry* entries, Py_ssize_t count, PyObject** keys) {
  constexpr Py_hash_t kRemoved = -1;
  Py_ssize_t found = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    keys[found] = entries[i].key;
    found += (entries[i].key != nullptr) & (entries[i].hash != kRemoved);
  }
  return found;
}

/// Reads the hash table from one end to the other: nothing is called that could change it.
bool add_set(PackedRow& row, PyObject* set) {
  const auto* object = reinterpret_cast<PySetObject*>(set);
  PyObject* keys[kBlock];
  for (Py_ssize_t start = 0; start <= object->mask; start += kBlock) {
    const Py_ssize_t found = list_keys(object->table + start, std::min(kBlock, object->mask + 1 - start), keys);
    for (Py_ssize_t i = 0; i < found; ++i) {
      if (i + kAhead < found) __builtin_prefetch(keys[i + kAhead]);
      if (!row.add(small_int(keys[i]))) return false;
    }
  }
  return true;
}

bool add_items(PackedRow& row, PyObject* sequence) {
  PyObject** items = PySequence_Fast_ITEMS(sequence);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    if (!row.add(small_int(items[i]))) return false;
  }
  return true;
}

template <typename Id>
bool add_array(PackedRow& row, const py::array_t<Id>& array) {
  const auto ids = array.template unchecked<1>();
  for (py::ssize_t i = 0; i < ids.shape(0); ++i) {
    if (!row.add(static_cast<Py_ssize_t>(ids(i)))) return false;
  }
  return true;
}

bool add_all(PackedRow& row, const py::object& ids) {
  PyObject* object = ids.ptr();
  // A subclass may iterate over something else than it holds.
  if (PySet_CheckExact(object) || PyFrozenSet_CheckExact(object)) return add_set(row, object);
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) return add_items(row, object);
  if (!py::isinstance<py::array>(ids) || py::array(ids).ndim() != 1) return false;
  if (py::isinstance<py::array_t<int64_t>>(ids)) return add_array(row, py::array_t<int64_t>(ids));
  if (py::isinstance<py::array_t<int32_t>>(ids)) return add_array(row, py::array_t<int32_t>(ids));
  return false;
}

}  // namespace

void bind_ids(py::module_& module) {
  using namespace py::literals;
  module.def(
      "pack_ids",
      [](const py::object& ids, size_t words) -> py::object {
        PackedRow row(words);
        return add_all(row, ids) ? row.array() : py::none();
      },
      "ids"_a, "words"_a,
      "A row of a bitmask, int32 of shape (words,), with the bits of a set, frozenset, list, tuple or array of ids; "
      "``None`` where one of them is no ``int`` from 0 to ``32 * words``, exclusive, or the collection is of another "
      "type.");
}

}  // namespace constrain
