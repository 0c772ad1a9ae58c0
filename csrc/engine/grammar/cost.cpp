#include "engine/grammar/cost.h"

#include <algorithm>
#include <vector>

namespace constrain {

uint64_t Costs::of(const Configuration* configuration) {
  if (const auto it = known_.find(configuration); it != known_.end()) return it->second;
  // Stacks may be thousands of frames high: each part is measured once, bottom first.
  std::vector<const Configuration*> pending{configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    uint64_t best = kInfinite;
    for (const Head& head : at->heads()) {
      const auto below = known_.find(head.below);
      if (head.below && below == known_.end()) {
        pending.push_back(head.below);
      } else {
        best = std::min(best, add_lengths(grammar_.remaining(head.state, head.reg), head.below ? below->second : 0));
      }
    }
    if (pending.size() > before) continue;
    known_[at] = best;
    pending.pop_back();
  }
  return known_[configuration];
}

}  // namespace constrain
