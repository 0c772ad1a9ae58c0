// Hash consing of schemas and of the values in them.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/json/value.h"
#include "engine/schema/keyword_table.h"

namespace constrain::schema {

/// What a member is, or an item if there is no key, by what its container holds.
Holds holds_below(Holds container, const std::string_view* key);

/// Finds equal values, so that a schema that occurs several times is read once. Annotations of schemas do not count.
class EqualValues {
 public:
  explicit EqualValues(std::pmr::memory_resource* memory)
      : found_(memory), alone_(memory), summaries_(memory), first_(memory) {}

  /// Returns the first value equal to this one. Values that contain identifiers are equal only to themselves: each is a
  /// schema of its own.
  const json::Value& first(const json::Value& value, Holds holds);

 private:
  struct Summary {
    uint64_t hash;
    bool named;  ///< contains identifiers
  };
  using Place = std::pair<const json::Value*, Holds>;
  struct Hash {
    size_t operator()(const Place& place) const {
      return reinterpret_cast<size_t>(place.first) + static_cast<size_t>(place.second);
    }
  };
  const json::Value& find(const json::Value& value, Holds holds);
  uint64_t outline(const json::Value& value, Holds holds) const;
  const json::Value& first_equal(const json::Value& value, Holds holds);
  Summary summary(const json::Value& value, Holds holds);
  Summary combine(const json::Value& value, Holds holds);
  void add_member(const json::Value::Member& member, Holds holds, Summary& sum);

  std::pmr::unordered_map<Place, const json::Value*, Hash> found_;
  std::pmr::unordered_map<uint64_t, Place> alone_;           // by outline, while no other value has it; or null
  std::pmr::unordered_map<Place, Summary, Hash> summaries_;  // for arrays and objects
  std::pmr::unordered_multimap<uint64_t, Place> first_;
};

}  // namespace constrain::schema
