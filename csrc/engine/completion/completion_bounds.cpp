#include "engine/completion/completion_bounds.h"

#include <algorithm>

namespace constrain {

void CompletionBounds::Bounds::unite(const Bounds& other) {
  waiting = std::max(waiting, other.waiting);
  opened = std::max(opened, other.opened);
}

uint64_t CompletionBounds::after_any_token(const Configuration& from) {
  const Bounds& frames = of(from);
  return add_lengths(add_lengths(frames.waiting, frames.opened), grammar_.max_on_top(grammar_.counters().built.load()));
}

uint64_t CompletionBounds::on_top(const StackTop& top) {
  const auto inside = grammar_.embedded(top.state, top.reg);
  if (!inside) return kInfinite;
  if (!*inside) return add_lengths(grammar_.max_waiting(top.state), grammar_.max_on_top(top.state));
  uint64_t own = 0;
  for (const StackTop& within : (*inside)->tops()) own = std::max(own, grammar_.max_on_top(within.state));
  return add_lengths(grammar_.max_waiting(top.state), add_lengths(of(**inside).waiting, own));
}

const CompletionBounds::Bounds& CompletionBounds::of(const Configuration& configuration) {
  if (const auto it = cache_.find(&configuration); it != cache_.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list visits each node once, parents first.
  std::vector<const Configuration*> pending{&configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    Bounds all;
    for (const StackTop& top : at->tops()) {
      if (const auto bounds = find(top, pending)) all.unite(*bounds);
    }
    if (pending.size() > before) continue;
    cache_[at] = all;
    pending.pop_back();
  }
  return cache_.at(&configuration);
}

/// Returns the bounds of a stack; none, after appending its parts to `missing`, if these have no bounds yet.
std::optional<CompletionBounds::Bounds> CompletionBounds::find(const StackTop& top,
                                                               std::vector<const Configuration*>& missing) const {
  Bounds found{grammar_.max_waiting(top.state), grammar_.max_opened(top.state)};
  const auto inside = grammar_.embedded(top.state, top.reg);
  if (!inside) found.waiting = kInfinite;
  bool complete = true;
  for (const Configuration* part : {top.parent, inside.value_or(nullptr)}) {
    if (!part) continue;
    const auto cached = cache_.find(part);
    if (cached == cache_.end()) {
      missing.push_back(part);
      complete = false;
      continue;
    }
    found.waiting = add_lengths(found.waiting, cached->second.waiting);
    found.opened = std::max(found.opened, cached->second.opened);
  }
  return complete ? std::optional(found) : std::nullopt;
}

}  // namespace constrain
