// Search for the values of an unfinished JSON text.
#pragma once

#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "engine/base/byte_set.h"
#include "engine/base/memory_account.h"
#include "engine/grammar/configuration.h"
#include "engine/grammar/cost.h"
#include "engine/grammar/parse_table.h"
#include "engine/json/item_text.h"

namespace constrain::json {

/// Enumerates the values that an unfinished text may have, by A* search over configurations with the completion cost as
/// heuristic. It appends only plain style, so that each value has few spellings.
class ValueSearch {
 public:
  struct Found {
    std::string value;  ///< in ItemText's canonical form
    uint64_t length;    ///< bytes appended to the text, without indentation
    std::string added;  ///< these bytes, with indentation
  };

  /// `item` is the configuration after `typed`, the text so far; `base` is the depth of the frames below it.
  ValueSearch(const ParseTable& grammar, const Configuration* item, std::string typed, uint32_t base, PlainStyle style);

  /// Enumerates the values of a rule that begin with `typed`.
  ValueSearch(const ParseTable& grammar, RuleId rule, std::string typed, PlainStyle style);

  /// Returns the next value by length, each once; none if there are no more. Throws ResourceLimit if too many texts
  /// have to be tried.
  std::optional<Found> next();

 private:
  /// A text, or several that differ in their last byte: these are made one by one, as most are never asked for.
  struct Node {
    uint64_t estimate;  // total length, or a lower bound on it
    std::string added;  // of several: the next one
    uint64_t length;
    const Configuration* at;                // null for several
    const Configuration* before = nullptr;  // ... which is their configuration before the last byte
    ByteSet last = {};                      // ... and these are their last bytes
    bool is_unlikely = false;               // ... which shortest completions are unlikely to go on with
    /// Of texts with one estimate, the longest come first: most searches end at the first value.
    bool operator>(const Node& other) const {
      const size_t size = added.size(), other_size = other.added.size();
      return std::tie(estimate, other_size, is_unlikely, added) >
             std::tie(other.estimate, size, other.is_unlikely, other.added);
    }
  };

  ValueSearch(const ParseTable& grammar, std::string typed, uint32_t base, PlainStyle style);

  bool make_next(Node& node);
  void expand(const Node& node, const ItemText& text);
  void add(const Node& before, const ByteSet& bytes, uint64_t length, bool is_unlikely);

  const ParseTable& grammar_;
  std::string typed_;
  PlainStyle style_;
  Arena arena_;
  Registers registers_;
  ConfigurationStore store_;
  Stepper stepper_;
  Costs costs_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> queue_;
  std::unordered_set<std::string> seen_;
  size_t nodes_ = 0;
  MemoryShare memory_;
};

}  // namespace constrain::json
