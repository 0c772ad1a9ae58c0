// A JSON document in memory: members keep their order, numbers their spelling.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "engine/base/arena.h"

namespace constrain::json {

/// Elements in the memory of a tree.
template <class T>
class List {
 public:
  List() = default;
  List(const T* data, size_t size) : data_(data), size_(size) {}

  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t index) const { return data_[index]; }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

/// A value; what it has lies in the memory of its tree.
struct Value {
  enum class Type { null, boolean, number, string, array, object };
  using Member = std::pair<std::string_view, Value>;

  Type type = Type::null;
  bool boolean = false;
  std::string_view text;  ///< content of a string (UTF-8); decimal spelling of a number
  List<Value> items;
  List<Member> members;

  bool is(Type other) const { return type == other; }
  const Value* find(std::string_view key) const {
    for (const auto& [name, value] : members) {
      if (name == key) return &value;
    }
    return nullptr;
  }
};

/// A document and the arena that holds its values: allocating each of the many small values of a schema would be slow.
struct Tree {
  Arena memory;
  Value root;
};

}  // namespace constrain::json
