// A JSON document in memory: members keep their order, numbers their spelling.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace constrain::json {

struct Value {
  enum class Type { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Value>;

  Type type = Type::null;
  bool boolean = false;
  std::string text;  ///< content of a string (UTF-8); decimal spelling of a number
  std::vector<Value> items;
  std::vector<Member> members;

  bool operator==(const Value&) const = default;
  bool is(Type other) const { return type == other; }
  const Value* find(std::string_view key) const {
    for (const auto& [name, value] : members) {
      if (name == key) return &value;
    }
    return nullptr;
  }
};

}  // namespace constrain::json
