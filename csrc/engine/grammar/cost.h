// What the shortest completion of a text costs.
#pragma once

#include <unordered_map>

#include "engine/grammar/configuration.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

/// Bytes of the shortest completions of configurations. Stacks share their lower parts, so each part is measured once.
class Costs {
 public:
  explicit Costs(const ParseTable& grammar) : grammar_(grammar) {}

  uint64_t of(const Configuration* configuration);

  /// How many configurations were measured.
  size_t size() const { return known_.size(); }

 private:
  const ParseTable& grammar_;
  std::unordered_map<const Configuration*, uint64_t> known_;
};

}  // namespace constrain
