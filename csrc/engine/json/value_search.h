// The values that an unfinished JSON text may have, shortest texts first.
#pragma once

#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/cost.h"
#include "engine/grammar/parse_table.h"
#include "engine/json/item_text.h"

namespace constrain::json {

/// A* search through the configurations after an unfinished text, with the cost of the shortest completion as the
/// heuristic. What it adds to the text is in the plain style, so that each value is found in few spellings.
class ValueSearch {
 public:
  struct Found {
    std::string value;  ///< in the canonical form of ItemText
    uint64_t length;    ///< bytes added to the text; the spaces of an indentation do not count
  };

  /// `item` is where a text stands in its grammar after `typed`, which is the text from its start on; `base` is the
  /// number of frames below it.
  ValueSearch(const ParseTable& grammar, const Configuration* item, std::string typed, uint32_t base, PlainStyle style);

  /// All values of a rule.
  ValueSearch(const ParseTable& grammar, RuleId rule, PlainStyle style);

  /// The next value by (length, text), each once; none where there are no more. Throws ResourceLimit where too many
  /// texts have to be tried.
  std::optional<Found> next();

 private:
  struct Node {
    uint64_t estimate;  // of the whole length
    std::string added;
    uint64_t length;
    const Configuration* at;
    bool operator>(const Node& other) const {
      return std::tie(estimate, added) > std::tie(other.estimate, other.added);
    }
  };

  ValueSearch(const ParseTable& grammar, std::string typed, uint32_t base, PlainStyle style);

  void add(std::string added, uint64_t length, const Configuration* at);
  void expand(const Node& node, const ItemText& text);

  const ParseTable& grammar_;
  std::string typed_;
  PlainStyle style_;
  Arena arena_;
  Registers registers_;
  ConfigurationStore store_;
  Costs costs_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> queue_;
  std::unordered_set<std::string> seen_;
  size_t nodes_ = 0;
};

}  // namespace constrain::json
