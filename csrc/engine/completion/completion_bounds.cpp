#include "engine/completion/completion_bounds.h"

#include <algorithm>

namespace constrain {

void CompletionBounds::Bounds::unite(const Bounds& other) {
  waiting = std::max(waiting, other.waiting);
  opened = std::max(opened, other.opened);
}

uint64_t CompletionBounds::after_any_token(const Configuration& from) {
  const Bounds& frames = of(from);
  return add_lengths(add_lengths(frames.waiting, frames.opened),
                     grammar_.most_on_top(grammar_.counters().built.load()));
}

uint64_t CompletionBounds::on_top(const Head& head) {
  const auto inside = grammar_.embedded(head.state, head.reg);
  if (!inside) return kInfinite;
  if (!*inside) return add_lengths(grammar_.most_waiting(head.state), grammar_.most_on_top(head.state));
  uint64_t top = 0;
  for (const Head& within : (*inside)->heads()) top = std::max(top, grammar_.most_on_top(within.state));
  return add_lengths(grammar_.most_waiting(head.state), add_lengths(of(**inside).waiting, top));
}

const CompletionBounds::Bounds& CompletionBounds::of(const Configuration& configuration) {
  if (const auto it = known_.find(&configuration); it != known_.end()) return it->second;
  // Stacks may be thousands of frames high: each part is looked at once, bottom first.
  std::vector<const Configuration*> pending{&configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    Bounds all;
    for (const Head& head : at->heads()) {
      if (const auto bounds = find(head, pending)) all.unite(*bounds);
    }
    if (pending.size() > before) continue;
    known_[at] = all;
    pending.pop_back();
  }
  return known_.at(&configuration);
}

/// The bounds of a stack; none, and what has to be looked at before, where that was not yet.
std::optional<CompletionBounds::Bounds> CompletionBounds::find(const Head& head,
                                                               std::vector<const Configuration*>& missing) const {
  Bounds found{grammar_.most_waiting(head.state), grammar_.most_opened(head.state)};
  const auto inside = grammar_.embedded(head.state, head.reg);
  if (!inside) found.waiting = kInfinite;
  bool complete = true;
  for (const Configuration* part : {head.below, inside.value_or(nullptr)}) {
    if (!part) continue;
    const auto known = known_.find(part);
    if (known == known_.end()) {
      missing.push_back(part);
      complete = false;
      continue;
    }
    found.waiting = add_lengths(found.waiting, known->second.waiting);
    found.opened = std::max(found.opened, known->second.opened);
  }
  return complete ? std::optional(found) : std::nullopt;
}

}  // namespace constrain
