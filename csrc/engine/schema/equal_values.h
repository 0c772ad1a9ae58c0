// Values that are equal to one another.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/json/value.h"

namespace constrain::schema {

/// Finds equal values, so that a schema that is written several times is read once.
class EqualValues {
 public:
  /// Of the values that equal this one the first that was asked about. Values with identifiers in them are only equal
  /// to themselves: each is a schema of its own.
  const json::Value& first(const json::Value& value);

 private:
  struct Summary {
    uint64_t hash;
    bool named;  ///< there are identifiers in it
  };
  Summary summary(const json::Value& value);
  Summary combine(const json::Value& value);

  std::unordered_map<const json::Value*, Summary> summaries_;  // of arrays and objects
  std::unordered_multimap<uint64_t, const json::Value*> first_;
};

}  // namespace constrain::schema
