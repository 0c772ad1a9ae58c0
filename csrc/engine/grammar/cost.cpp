#include "engine/grammar/cost.h"

namespace constrain {

const Costs::Cheapest& Costs::find(const Configuration* configuration) {
  if (const auto it = cache_.find(configuration); it != cache_.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list measures each node once, parents first.
  pending_.assign(1, configuration);
  while (true) {
    const Configuration* at = pending_.back();
    const size_t before = pending_.size();
    for (const StackTop& top : at->tops()) {
      if (top.parent && !cache_.contains(top.parent)) pending_.push_back(top.parent);
    }
    if (pending_.size() > before) continue;
    const Cheapest& measured = cache_.try_emplace(at, measure(*at)).first->second;
    pending_.pop_back();
    if (pending_.empty()) return measured;
  }
}

/// Measures a configuration whose parents are cached.
Costs::Cheapest Costs::measure(const Configuration& at) const {
  Cheapest best;
  for (uint32_t i = 0; i < at.count; ++i) {
    const StackTop& top = at.tops()[i];
    const uint64_t parent = top.parent ? cache_.at(top.parent).bytes : 0;
    const uint64_t bytes = add_lengths(grammar_.remaining(top.state, top.reg), parent);
    if (bytes < best.bytes) best = {bytes, {}};
    if (bytes == best.bytes && at.count > 1) best.tops.push_back(i);
  }
  return best;
}

}  // namespace constrain
