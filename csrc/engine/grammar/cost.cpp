#include "engine/grammar/cost.h"

#include <algorithm>
#include <vector>

namespace constrain {

const Costs::Cheapest& Costs::find(const Configuration* configuration) {
  if (const auto it = cache_.find(configuration); it != cache_.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list measures each node once, parents first.
  std::vector<const Configuration*> pending{configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    Cheapest best;
    for (size_t i = 0; i < at->count; ++i) {
      const StackTop& top = at->tops()[i];
      const auto parent = cache_.find(top.parent);
      if (top.parent && parent == cache_.end()) {
        pending.push_back(top.parent);
      } else {
        const uint64_t own = grammar_.remaining(top.state, top.reg);
        const uint64_t bytes = add_lengths(own, top.parent ? parent->second.bytes : 0);
        if (bytes < best.bytes) best = {bytes, i};
      }
    }
    if (pending.size() > before) continue;
    cache_[at] = best;
    pending.pop_back();
  }
  return cache_.at(configuration);
}

}  // namespace constrain
