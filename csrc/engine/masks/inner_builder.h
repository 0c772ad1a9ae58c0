// Finds what single frames allow.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/footprint.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/inner.h"
#include "engine/masks/trie_walk.h"

namespace constrain {

/// Makes the inner parts of masks, and keeps them under descriptions of their frames: with the vocabulary where frames
/// of other grammars may be the same, else with the grammar.
class InnerBuilder {
 public:
  /// Walks with `walk`, and records in `footprint` which frames were looked at closely.
  InnerBuilder(const CompiledGrammar& grammar, TrieWalk& walk, Footprint& footprint)
      : grammar_(grammar), footprint_(footprint), walk_(walk) {}

  InnerPtr inner(const Head& head);

  /// All frames that were asked for have descriptions.
  bool describable() const { return describable_; }

 private:
  using Key = std::vector<uint64_t>;

  InnerPtr portable_inner(const Head& head, const Key& key);
  InnerPtr described_inner(const Head& head);
  Inner walk_alone(const Head& head);
  void walk_alone(const TriePtr& trie, const Head& head, const ByteSet& first, Inner& inner);
  bool walk_tails(const Head& head, const WildcardRegion& text, Inner& inner);
  void drop_tokens(const Trie& trie);
  void sort_by_first_byte(Inner& inner);
  void find_like(const Head& head, const WildcardRegion& text, Inner& inner);

  const CompiledGrammar& grammar_;
  Footprint& footprint_;
  TrieWalk& walk_;
  bool describable_ = true;
};

}  // namespace constrain
