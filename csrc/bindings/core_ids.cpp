// Collections of token ids, as Python filters return them, packed into rows of a bitmask.
#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "bindings/core.h"
#include "engine/base/workers.h"
#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

namespace constrain {

namespace {

/// Sets the bits of few ids one by one.
class FewIds {
 public:
  FewIds(uint32_t* bits, size_t words) : bits_(bits), limit_(words * 32) { std::fill(bits, bits + words, 0u); }

  /// Returns false where there is no room for an id, as for every negative one.
  bool add(Py_ssize_t id) {
    if (static_cast<size_t>(id) >= limit_) return false;
    bits_[id / 32] |= 1u << (id % 32);
    return true;
  }

  void finish() {}

 private:
  uint32_t* bits_;
  size_t limit_;
};

/// Sets a byte for each of many ids, and makes bits of the bytes: no id waits for the word of the one before it.
class ManyIds {
 public:
  ManyIds(uint32_t* bits, size_t words) : bits_(bits), flags_(words * 32) {}

  bool add(Py_ssize_t id) {
    if (static_cast<size_t>(id) >= flags_.size()) return false;
    flags_[id] = 1;
    return true;
  }

  void finish() {
    for (size_t i = 0; i < flags_.size(); i += 32) {
      uint32_t word = 0;
      for (size_t part = 0; part < 4; ++part) {
        uint64_t bytes;
        std::memcpy(&bytes, &flags_[i + 8 * part], sizeof bytes);
        constexpr uint64_t kGather = 0x0102040810204080;  // moves bit 0 of byte k to bit 56 + k
        word |= static_cast<uint32_t>(bytes * kGather >> 56) << (8 * part);
      }
      bits_[i / 32] = word;
    }
  }

 private:
  uint32_t* bits_;
  std::vector<uint8_t> flags_;
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

void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address);
#else
  (void)address;
#endif
}

/// Threads that read large sets; the thread that holds the interpreter's lock is one more. They are never joined: a
/// process that was forked has none of them.
Workers& readers() {
  static Workers& workers = *new Workers(std::clamp(std::thread::hardware_concurrency(), 2u, 8u) - 1);
  return workers;
}

/// Parts of a hash table that threads read side by side.
constexpr Py_ssize_t kTablePart = 1 << 14;

/// Calls `use` with the start and the end of each part of a hash table. That is safe, because this thread keeps the
/// interpreter's lock meanwhile.
template <typename Use>
void for_parts(Py_ssize_t size, const Use& use) {
  if (size < 2 * kTablePart) return use(0, size);
  const auto use_part = [&](size_t part) {
    const Py_ssize_t start = static_cast<Py_ssize_t>(part) * kTablePart;
    use(start, std::min(start + kTablePart, size));
  };
  readers().start(static_cast<size_t>((size + kTablePart - 1) / kTablePart), use_part)->finish();
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

/// Adds the keys among the entries from `start` to `end` of a set's hash table, and calls nothing that could change it.
template <typename Ids>
bool add_entries(Ids& ids, const PySetObject* set, Py_ssize_t start, Py_ssize_t end) {
  constexpr Py_ssize_t kBlock = 512, kAhead = 24;
  PyObject* keys[kBlock];
  for (; start < end; start += kBlock) {
    const Py_ssize_t found = list_keys(set->table + start, std::min(kBlock, end - start), keys);
    for (Py_ssize_t i = 0; i < found; ++i) {
      prefetch(keys[std::min(i + kAhead, found - 1)]);  // each number lies in memory of its own
      if (!ids.add(small_int(keys[i]))) return false;
    }
  }
  return true;
}

bool add_set(FewIds& ids, const PySetObject* set) { return add_entries(ids, set, 0, set->mask + 1); }

bool add_set(ManyIds& ids, const PySetObject* set) {
  std::atomic<bool> valid{true};
  for_parts(set->mask + 1, [&](Py_ssize_t start, Py_ssize_t end) {
    if (!add_entries(ids, set, start, end)) valid = false;
  });
  return valid;
}

/// Digest of entries of a hash table. Every word changes one of the lanes, and no change of a single word leaves its
/// lane as it was.
using Digest = std::array<uint64_t, 8>;

Digest digest_entries(const setentry* entries, Py_ssize_t count) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  constexpr Py_ssize_t kAtOnce = sizeof(Digest) / sizeof(setentry);
  Digest lanes{};
  for (Py_ssize_t i = 0; i < count; i += kAtOnce) {
    Digest words;
    std::memcpy(&words, entries + i, sizeof words);
    for (size_t lane = 0; lane < lanes.size(); ++lane) lanes[lane] = (lanes[lane] ^ words[lane]) * kOdd;
  }
  return lanes;
}

/// A digest of the hash table of a set, which tells whether a set still has the same elements. The table has the
/// addresses of the elements and their hashes: a number that has come to lie where another one lay has another hash.
class SetDigest {
 public:
  explicit SetDigest(const py::set& set) {
    const auto* table = reinterpret_cast<const PySetObject*>(set.ptr());
    size_ = table->mask + 1;
    parts_.resize(static_cast<size_t>((size_ + kTablePart - 1) / kTablePart));
    for_parts(size_, [&](Py_ssize_t start, Py_ssize_t end) {
      parts_[static_cast<size_t>(start / kTablePart)] = digest_entries(table->table + start, end - start);
    });
  }

  bool operator==(const SetDigest&) const = default;

 private:
  Py_ssize_t size_;
  std::vector<Digest> parts_;
};

template <typename Ids>
bool add_items(Ids& ids, PyObject* sequence) {
  PyObject** items = PySequence_Fast_ITEMS(sequence);
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(sequence),
                     [&](PyObject* item) { return ids.add(small_int(item)); });
}

template <typename Id, typename Ids>
bool add_array(Ids& ids, const py::array_t<Id>& array) {
  const auto values = array.template unchecked<1>();
  for (py::ssize_t i = 0; i < values.shape(0); ++i) {
    if (!ids.add(static_cast<Py_ssize_t>(values(i)))) return false;
  }
  return true;
}

template <typename Ids>
bool add_all(Ids& ids, const py::object& collection) {
  PyObject* object = collection.ptr();
  // A subclass may iterate over something else than it holds.
  if (PySet_CheckExact(object) || PyFrozenSet_CheckExact(object))
    return add_set(ids, reinterpret_cast<const PySetObject*>(object));
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) return add_items(ids, object);
  if (!py::isinstance<py::array>(collection) || py::reinterpret_borrow<py::array>(collection).ndim() != 1) return false;
  if (py::isinstance<py::array_t<int64_t>>(collection)) return add_array(ids, py::array_t<int64_t>(collection));
  if (py::isinstance<py::array_t<int32_t>>(collection)) return add_array(ids, py::array_t<int32_t>(collection));
  return false;
}

template <typename Ids>
bool pack(const py::object& collection, uint32_t* bits, size_t words) {
  Ids ids(bits, words);
  if (!add_all(ids, collection)) return false;
  ids.finish();
  return true;
}

}  // namespace

void bind_ids(py::module_& module) {
  using namespace py::literals;
  py::class_<SetDigest>(module, "SetDigest", "A digest of the hash table of a ``set``.")
      .def(py::init<const py::set&>(), "ids"_a)
      .def(
          "__eq__", [](const SetDigest& a, const SetDigest& b) { return a == b; }, py::is_operator(),
          "Whether two tables are the same; then the sets have the same elements.");
  module.def(
      "pack_ids",
      [](const py::object& ids, size_t words) -> py::object {
        py::array_t<int32_t> row(static_cast<py::ssize_t>(words));
        auto* bits = reinterpret_cast<uint32_t*>(row.mutable_data());
        const Py_ssize_t count = PyObject_Size(ids.ptr());
        if (count < 0) PyErr_Clear();
        const bool is_many = count > static_cast<Py_ssize_t>(words);
        const bool is_packed = is_many ? pack<ManyIds>(ids, bits, words) : pack<FewIds>(ids, bits, words);
        return is_packed ? py::object(row) : py::none();
      },
      "ids"_a, "words"_a,
      "A row of a bitmask, int32 of shape (words,), with the bits of a set, frozenset, list, tuple or array of ids; "
      "``None`` where one of them is no ``int`` from 0 to ``32 * words``, exclusive, or the collection is of another "
      "type.");
}

}  // namespace constrain
