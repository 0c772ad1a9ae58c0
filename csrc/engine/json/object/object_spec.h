// Input of an object rule: the members that a schema allows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/rule.h"
#include "engine/json/object/key_language.h"

namespace constrain::json {

/// The members of an object.
struct ObjectSpec {
  /// A value that a member may have, and the duties (by bit) that it fulfils.
  struct Choice {
    RuleId value;
    uint32_t duties = 0;
    bool operator==(const Choice&) const = default;
  };
  struct Property {
    std::string name;
    std::vector<Choice> choices;
    bool required = false;
  };
  struct Others {
    KeyLanguagePtr keys;  ///< disjoint from each other; without the names where finite
    std::vector<Choice> choices;
  };
  std::vector<Property> properties;  ///< in the order of the schema
  std::vector<Others> others;
  std::vector<std::pair<uint32_t, uint32_t>> dependents;  ///< if the first property is present, so is the second
  uint32_t duties = 0;                                    ///< bits that the members together must fulfil
  uint64_t min = 0, max = kInfinite;
  bool in_order = false;  ///< properties come in their order, and other keys after them

  static constexpr size_t kMaxDuties = 6;
};

}  // namespace constrain::json
