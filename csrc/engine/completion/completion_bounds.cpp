#include "engine/completion/completion_bounds.h"

#include <algorithm>

namespace constrain {

std::optional<uint64_t> CompletionBounds::to_spare(const Configuration& from, uint64_t budget) {
  if (!grammar_.bytes_bound_tokens()) return std::nullopt;
  const uint64_t on_top = grammar_.max_on_top(grammar_.counters().built.load());
  if (on_top > budget) return std::nullopt;
  for (Cache* cache : {&any_, &measured_}) {
    const uint64_t most = of(from, *cache, budget - on_top).after;
    if (most <= budget - on_top) return budget - on_top - most;
  }
  return std::nullopt;
}

uint64_t CompletionBounds::on_top(const StackTop& top) {
  const auto inside = grammar_.embedded(top.state, top.reg);
  if (!inside) return kInfinite;
  if (!*inside) return add_lengths(grammar_.max_waiting(top.state), grammar_.max_on_top(top.state));
  uint64_t own = 0;
  for (const StackTop& within : (*inside)->tops()) own = std::max(own, grammar_.max_on_top(within.state));
  return add_lengths(grammar_.max_waiting(top.state), add_lengths(of(**inside, any_).now, own));
}

/// Bounds all stacks; some of them, if any needs more than `limit` after a token.
FrameBounds CompletionBounds::of(const Configuration& configuration, Cache& cache, uint64_t limit) const {
  if (const auto it = cache.find(&configuration); it != cache.end()) return it->second;
  // Stacks may be thousands of frames high: an explicit work list visits each node once, parents first.
  std::vector<const Configuration*> pending{&configuration};
  while (!pending.empty()) {
    const Configuration* at = pending.back();
    const size_t before = pending.size();
    FrameBounds all;
    for (const StackTop& top : at->tops()) {
      const auto bounds = find(top, cache, pending);
      if (bounds) all = {std::max(all.now, bounds->now), std::max(all.after, bounds->after)};
      if (all.after > limit) return all;
    }
    if (pending.size() > before) continue;
    cache[at] = all;
    pending.pop_back();
  }
  return cache.at(&configuration);
}

/// Returns the bounds of a stack; none, after appending its parts to `missing`, if these have no bounds yet.
std::optional<FrameBounds> CompletionBounds::find(const StackTop& top, const Cache& cache,
                                                  std::vector<const Configuration*>& missing) const {
  const auto inside = grammar_.embedded(top.state, top.reg);
  if (!inside) return FrameBounds{kInfinite, kInfinite};
  FrameBounds parent, within;
  const size_t before = missing.size();
  const auto look_up = [&](const Configuration* part, FrameBounds& found) {
    if (!part) return;
    const auto cached = cache.find(part);
    if (cached == cache.end()) {
      missing.push_back(part);
    } else {
      found = cached->second;
    }
  };
  look_up(top.parent, parent), look_up(*inside, within);
  if (missing.size() > before) return std::nullopt;
  // The needs of an embedded text from its array are bounded over all states only.
  const FrameBounds own = grammar_.frame_bounds(top.state, top.reg, &cache == &measured_ && !*inside);
  const uint64_t here = std::max(own.after, add_lengths(own.now, within.after));
  return FrameBounds{add_lengths(own.now, add_lengths(within.now, parent.now)),
                     std::max(add_lengths(here, parent.now), parent.after)};
}

}  // namespace constrain
