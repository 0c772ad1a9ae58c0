#include "engine/masks/portable.h"

#include <algorithm>
#include <utility>

#include "engine/masks/trie_walk.h"

namespace constrain {

namespace {

/// Set keys of what is asked here apart from those of what frames allow.
constexpr uint64_t kBelow = ~uint64_t{0}, kGrowth = ~uint64_t{1};

template <class Make>
InnerPtr find_or_make(const CompiledGrammar& grammar, const Head& head, uint64_t node, uint64_t kind,
                      const Make& make) {
  std::vector<uint64_t> key;
  if (!grammar.describe_portably(head.state, head.reg, key)) return nullptr;
  key.push_back(node);
  key.push_back(kind);
  Vocabulary::SharedResults& cache = grammar.vocabulary().shared_results();
  if (const auto known = cache.find(key)) return std::static_pointer_cast<const Inner>(*known);
  thread_local WalkScratch scratch;
  TrieWalk walk(grammar, scratch);
  auto made = std::make_shared<Inner>();
  make(walk, *made);
  for (const uint32_t exit : walk.exits) made->exits.push_back({grammar.vocabulary().shared_trie(), exit});
  cache.keep(key, made, made->bytes());
  return made;
}

}  // namespace

InnerPtr portable_below(const CompiledGrammar& grammar, const Head& head, uint32_t node) {
  return find_or_make(grammar, head, node, kBelow, [&](TrieWalk& walk, Inner& made) {
    walk.run_below(grammar.vocabulary().trie(), node, head.state, head.reg);
    made.tokens = walk.tokens;
  });
}

InnerPtr portable_growth(const CompiledGrammar& grammar, const Head& head) {
  return find_or_make(grammar, head, 0, kGrowth, [&](TrieWalk& walk, Inner& made) {
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
    walk.run_below(grammar.vocabulary().trie(), 0, head.state, head.reg);
  });
}

}  // namespace constrain
