#include "engine/masks/frame_growth.h"

#include <algorithm>
#include <utility>

#include "engine/masks/trie_walk.h"

namespace constrain {

namespace {

/// Appended to keys, to tell them from those of context-independent tokens.
constexpr uint64_t kGrowth = ~uint64_t{1};

FrameGrowth walk_growth(const CompiledGrammar& grammar, const StackTop& top) {
  thread_local WalkScratch scratch;
  TrieWalk walk(grammar, scratch);
  FrameGrowth made;
  const uint64_t before = grammar.remaining(top.state, top.reg);
  StackTop last{kDone, 0, nullptr};
  walk.admits = [&](std::span<const StackTop> tops, const Configuration*) {
    for (const StackTop& after : tops) {
      if (after == last) continue;
      last = after;
      const uint64_t needed = grammar.remaining(after.state, after.reg);
      made.bytes = std::max(made.bytes, needed - std::min(needed, before));
    }
    return false;
  };
  walk.run_alone(grammar.vocabulary().trie(), top, 0);
  made.boundary_nodes = walk.boundary_nodes;
  return made;
}

}  // namespace

std::shared_ptr<const FrameGrowth> frame_growth(const CompiledGrammar& grammar, const StackTop& top) {
  std::vector<uint64_t> key;
  if (!grammar.describe_portably(top.state, top.reg, key)) return nullptr;
  key.push_back(kGrowth);
  Vocabulary::SharedResults& cache = grammar.vocabulary().shared_results();
  if (const auto cached = cache.find(key)) return std::static_pointer_cast<const FrameGrowth>(*cached);
  auto made = std::make_shared<const FrameGrowth>(walk_growth(grammar, top));
  cache.put(key, made, sizeof(FrameGrowth) + made->boundary_nodes.size() * sizeof(uint32_t));
  return made;
}

}  // namespace constrain
