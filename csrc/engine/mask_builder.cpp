#include "engine/mask_builder.h"

#include <algorithm>

#include "engine/bits.h"
#include "engine/compiled_grammar.h"
#include "engine/configuration.h"
#include "engine/trie_walk.h"

namespace constrain {

namespace {

/// More readings than this are walked together: they tend to agree after a byte or two.
constexpr size_t kJointAbove = 8;

/// The frames of one more level for a key: those that wait below all heads alike. False where they differ.
bool one_below(const Configuration& configuration, const Configuration*& below) {
  const auto heads = configuration.heads();
  below = heads.front().below;
  return std::all_of(heads.begin(), heads.end(), [&](const Head& head) { return head.below == below; });
}

}  // namespace

MaskPtr MaskBuilder::build(const Configuration& configuration) {
  MaskCache& cache = grammar_.masks();
  std::vector<uint64_t> key{configuration.accepting};
  // `levels[i]` is where in the key the frames of the first i levels end.
  std::vector<size_t> levels;
  const Configuration* at = &configuration;
  while (describe(*at, key)) {
    levels.push_back(key.size());
    const auto known = cache.find(key);
    if (known && *known) {
      ++grammar_.counters().found;
      return *known;
    }
    if (!known) break;
    if (!one_below(*at, at) || !at) break;
  }

  thread_local WalkScratch scratch;
  TrieWalk walk(grammar_, scratch);
  describable_ = true;
  const MaskPtr mask = compute(configuration, walk);
  grammar_.counters().visited += walk.visited;
  if (!describable_ || walk.indescribable()) return mask;

  key.resize(1);
  const Configuration* level = &configuration;
  while (true) {
    if (!describe(*level, key)) return mask;
    const Configuration* below = nullptr;
    const bool uniform = one_below(*level, below);
    if (!below || below->depth < walk.lowest()) break;
    if (!uniform) return mask;
    cache.keep(key, nullptr, 0);
    level = below;
  }
  cache.keep(std::move(key), mask, mask->words.size() * sizeof(uint32_t));
  return mask;
}

bool MaskBuilder::describe(const Configuration& configuration, std::vector<uint64_t>& key) const {
  if (configuration.count > kJointAbove) return false;
  key.push_back(configuration.count);
  for (const Head& head : configuration.heads()) {
    if (!grammar_.describe(head.state, head.reg, head.below ? head.below->depth : 0, key)) return false;
  }
  return true;
}

MaskPtr MaskBuilder::compute(const Configuration& configuration, TrieWalk& walk) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  ++grammar_.counters().built;
  std::vector<uint32_t> words(vocabulary.mask_words());
  // Where the top frames may be over before the next byte those below them speak as well.
  std::vector<const Configuration*> pending{&configuration};
  for (size_t i = 0; i < pending.size(); ++i) {
    const Configuration& at = *pending[i];
    walk.consult(at);
    if (at.count > kJointAbove) {
      add_jointly(at, walk, words);
      continue;
    }
    for (const Head& head : at.heads()) {
      if (!head.below || !grammar_.row(head.state).accepting) continue;
      if (std::find(pending.begin(), pending.end(), head.below) == pending.end()) pending.push_back(head.below);
    }
    add(at, walk, words);
  }
  if (configuration.accepting) {
    for (const TokenId id : vocabulary.eos()) bits::set(words.data(), static_cast<size_t>(id));
  }
  return vocabulary.masks().intern(std::move(words));
}

void MaskBuilder::add(const Configuration& configuration, TrieWalk& walk, std::vector<uint32_t>& words) {
  for (const Head& head : configuration.heads()) {
    const InnerPtr inner = this->inner(head, walk);
    if (inner->within) inner->within->add(inner->room, words);
    if (!inner->words.empty()) bits::unite(words.data(), inner->words.data(), words.size());
    allow(inner->tokens, words);
    if (!head.below) continue;
    walk.tokens.clear();
    for (const Inner::Exit& exit : inner->exits) walk.run(*exit.trie, exit.node, *head.below);
    allow(walk.tokens, words);
  }
}

void MaskBuilder::add_jointly(const Configuration& configuration, TrieWalk& walk, std::vector<uint32_t>& words) {
  walk.tokens.clear();
  walk.run(grammar_.vocabulary().trie(), 0, configuration);
  allow(walk.tokens, words);
}

void MaskBuilder::allow(const std::vector<TokenId>& tokens, std::vector<uint32_t>& words) const {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  for (TokenId token : tokens) {
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) {
      bits::set(words.data(), static_cast<size_t>(token));
    }
  }
}

InnerPtr MaskBuilder::inner(const Head& head, TrieWalk& walk) {
  const uint32_t depth = head.below ? head.below->depth : 0;
  std::vector<uint64_t> key;
  InnerCache* cache = &grammar_.inners();
  if (grammar_.describe_portably(head.state, head.reg, key)) {
    cache = &grammar_.vocabulary().inners();
  } else if (!grammar_.describe(head.state, head.reg, depth, key)) {
    describable_ = false;
    return std::make_shared<const Inner>(walk_alone(head, walk));
  }
  if (const auto known = cache->find(key)) return *known;
  const bool before = walk.indescribable();
  auto made = std::make_shared<const Inner>(walk_alone(head, walk));
  if (before == walk.indescribable()) cache->keep(std::move(key), made, made->bytes());
  return made;
}

Inner MaskBuilder::walk_alone(const Head& head, TrieWalk& walk) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  const uint32_t depth = head.below ? head.below->depth : 0;
  ++grammar_.counters().inners;
  Inner inner;
  walk.tokens.clear();
  const auto visit = [&](const Trie& trie) {
    walk.exits.clear();
    walk.run_alone(trie, head.state, head.reg, depth);
    for (const uint32_t node : walk.exits) {
      // At the very start the frames below speak for themselves.
      if (node != 0) inner.exits.push_back({&trie, node});
    }
  };
  const FreeText text = grammar_.free_text(head.state, head.reg);
  const bool far = !text.exact && text.room >= FreeTextFinder::kHorizon;
  if (text.exact || far) {
    inner.within = vocabulary.token_class(text.characters, text.leaving);
    inner.room = text.room;
    visit(inner.within->leaving);
    if (far || text.room > FreeTextFinder::kHorizon) visit(inner.within->far);
  } else {
    visit(vocabulary.trie());
  }
  if (walk.tokens.size() <= vocabulary.mask_words()) {
    inner.tokens = walk.tokens;
  } else {
    inner.words.resize(vocabulary.mask_words());
    allow(walk.tokens, inner.words);
  }
  return inner;
}

}  // namespace constrain
