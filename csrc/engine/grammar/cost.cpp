#include "engine/grammar/cost.h"

#include <algorithm>
#include <vector>

namespace constrain {

uint64_t Costs::of(const Configuration* configuration) {
  if (const auto it = cache_.find(configuration); it != cache_.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list measures each node once, parents first.
  std::vector<const Configuration*> pending{configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    uint64_t best = kInfinite;
    for (const StackTop& top : at->tops()) {
      const auto parent = cache_.find(top.parent);
      if (top.parent && parent == cache_.end()) {
        pending.push_back(top.parent);
      } else {
        best = std::min(best, add_lengths(grammar_.remaining(top.state, top.reg), top.parent ? parent->second : 0));
      }
    }
    if (pending.size() > before) continue;
    cache_[at] = best;
    pending.pop_back();
  }
  return cache_[configuration];
}

}  // namespace constrain
