// Cost of the shortest completion of a text.
#pragma once

#include <memory_resource>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

/// Computes the bytes of shortest completions. Caches them by node, because stacks share their lower parts.
class Costs {
 public:
  explicit Costs(const ParseTable& grammar) : grammar_(grammar) {}

  uint64_t of(const Configuration* configuration) { return find(configuration).bytes; }
  uint64_t of(const StackTop& top) {
    return add_lengths(grammar_.remaining(top.state, top.reg), top.parent ? of(top.parent) : 0);
  }

  /// The stack tops, by index, that shortest completions take; of a configuration with several.
  const std::vector<uint32_t>& cheapest(const Configuration* configuration) { return find(configuration).tops; }

  /// Configurations measured so far.
  size_t size() const { return cache_.size(); }

 private:
  struct Cheapest {
    uint64_t bytes = kInfinite;
    std::vector<uint32_t> tops;  ///< empty if there is only one
  };
  const Cheapest& find(const Configuration* configuration);
  Cheapest measure(const Configuration& at) const;

  const ParseTable& grammar_;
  std::vector<const Configuration*> pending_;   // of `find`
  std::pmr::monotonic_buffer_resource memory_;  // large caches are dropped at once
  std::pmr::unordered_map<const Configuration*, Cheapest> cache_{&memory_};
};

}  // namespace constrain
