#include "engine/masks/portable.h"

#include <algorithm>
#include <utility>

#include "engine/masks/trie_walk.h"

namespace constrain {

namespace {

/// Appended to keys, to tell them from those of context-independent tokens.
constexpr uint64_t kGrowth = ~uint64_t{1};

Inner walk_growth(const CompiledGrammar& grammar, const Head& head) {
  thread_local WalkScratch scratch;
  TrieWalk walk(grammar, scratch);
  Inner made;
  const uint64_t before = grammar.remaining(head.state, head.reg);
  Head last{kDone, 0, nullptr};
  walk.admits = [&](std::span<const Head> heads) {
    for (const Head& after : heads) {
      if (after == last) continue;
      last = after;
      const uint64_t needed = grammar.remaining(after.state, after.reg);
      made.growth = std::max(made.growth, needed - std::min(needed, before));
    }
    return false;
  };
  walk.run_alone(grammar.vocabulary().trie(), head.state, head.reg, 0, ByteSet::all());
  for (const uint32_t exit : walk.exits) made.exits.push_back({grammar.vocabulary().shared_trie(), exit});
  return made;
}

}  // namespace

InnerPtr portable_growth(const CompiledGrammar& grammar, const Head& head) {
  std::vector<uint64_t> key;
  if (!grammar.describe_portably(head.state, head.reg, key)) return nullptr;
  key.push_back(kGrowth);
  Vocabulary::SharedResults& cache = grammar.vocabulary().shared_results();
  if (const auto known = cache.find(key)) return std::static_pointer_cast<const Inner>(*known);
  auto made = std::make_shared<const Inner>(walk_growth(grammar, head));
  cache.keep(key, made, made->bytes());
  return made;
}

}  // namespace constrain
