// Input of an object rule: the members that a schema allows.
#pragma once

#include <cstdint>
#include <span>
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
  /// The choices of one member, as a range of `values`.
  struct Choices {
    uint32_t first = 0, count = 0;
    bool empty() const { return count == 0; }
  };
  struct Property {
    std::string name;
    Choices choices;
    bool required = false;
  };
  struct Others {
    KeyLanguagePtr keys;  ///< disjoint from each other; without the names where finite
    Choices choices;
  };
  std::vector<Choice> values;        ///< of all members: most have one, so that lists of their own would be many
  std::vector<Property> properties;  ///< in the order of the schema
  std::vector<Others> others;
  std::vector<std::pair<uint32_t, uint32_t>> dependents;  ///< if the first property is present, so is the second
  uint32_t duties = 0;                                    ///< bits that the members together must fulfil
  uint64_t min = 0, max = kInfinite;
  bool in_order = false;  ///< properties come in their order, and other keys after them

  std::span<const Choice> operator[](Choices range) const {
    return std::span(values).subspan(range.first, range.count);
  }

  static constexpr size_t kMaxDuties = 6;
};

}  // namespace constrain::json
