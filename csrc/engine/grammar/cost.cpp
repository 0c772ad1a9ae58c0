#include "engine/grammar/cost.h"

namespace constrain {

const Costs::Cheapest& Costs::find(const Configuration* configuration) {
  if (const auto it = cache_.find(configuration); it != cache_.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list measures each node once, parents first.
  std::vector<const Configuration*> pending{configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    for (const StackTop& top : at->tops()) {
      const bool missing = top.parent && top.parent != pending.back() && !cache_.contains(top.parent);
      if (missing) pending.push_back(top.parent);
    }
    if (pending.size() > before) continue;
    if (!cache_.contains(at)) cache_[at] = measure(*at);
    pending.pop_back();
  }
  return cache_.at(configuration);
}

/// Measures a configuration whose parents are cached.
Costs::Cheapest Costs::measure(const Configuration& at) const {
  Cheapest best;
  for (uint32_t i = 0; i < at.count; ++i) {
    const StackTop& top = at.tops()[i];
    const uint64_t parent = top.parent ? cache_.at(top.parent).bytes : 0;
    const uint64_t bytes = add_lengths(grammar_.remaining(top.state, top.reg), parent);
    if (bytes < best.bytes) best = {bytes, {}};
    if (bytes == best.bytes) best.tops.push_back(i);
  }
  return best;
}

}  // namespace constrain
