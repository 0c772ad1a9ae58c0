// Hash consing of equal JSON values.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <unordered_map>

#include "engine/json/value.h"

namespace constrain::schema {

/// Finds equal values, so that a schema that occurs several times is read once.
class EqualValues {
 public:
  explicit EqualValues(std::pmr::memory_resource* memory) : summaries_(memory), first_(memory) {}

  /// Returns the first value equal to this one. Values that contain identifiers are equal only to themselves: each is a
  /// schema of its own.
  const json::Value& first(const json::Value& value);

 private:
  struct Summary {
    uint64_t hash;
    bool named;  ///< contains identifiers
  };
  Summary summary(const json::Value& value);
  Summary combine(const json::Value& value);

  std::pmr::unordered_map<const json::Value*, Summary> summaries_;  // for arrays and objects
  std::pmr::unordered_multimap<uint64_t, const json::Value*> first_;
};

}  // namespace constrain::schema
