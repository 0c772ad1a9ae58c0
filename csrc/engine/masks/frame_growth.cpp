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
  const Vocabulary& vocabulary = grammar.vocabulary();
  // Where a bound is known for text of the frame's wildcard region, only tokens that leave the region are walked.
  const WildcardRegion text = grammar.wildcard_region(top.state, top.reg);
  if (text.exact && text.max_length >= vocabulary.longest_token()) {
    const uint64_t growth = grammar.max_growth(top.state, top.reg);
    if (growth != kInfinite) {
      made.bytes = growth;
      made.leaving = vocabulary.token_class(text.characters)->leaving(text.leaving, vocabulary);
    }
  }
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
  walk.run_alone(made.trie(vocabulary), top, 0);
  grammar.counters().visited += walk.visited;
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
