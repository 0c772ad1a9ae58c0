// Computes and caches the context-independent tokens of frames.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/footprint.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/frame_tokens.h"
#include "engine/masks/trie_walk.h"

namespace constrain {

/// Computes the context-independent tokens of frames. They are cached with the vocabulary if the frame means the same
/// in all grammars, else with the grammar.
class FrameTokensBuilder {
 public:
  /// Walks with `walk`, and records in `footprint` which frames were inspected beyond their outlines.
  FrameTokensBuilder(const CompiledGrammar& grammar, TrieWalk& walk, Footprint& footprint)
      : grammar_(grammar), footprint_(footprint), walk_(walk) {}

  FrameTokensPtr frame(const StackTop& top);

  /// True if every frame so far had a description.
  bool describable() const { return describable_; }

 private:
  using Key = std::vector<uint64_t>;

  FrameTokensPtr portable_tokens(const StackTop& top, const Key& key);
  FrameTokensPtr described_tokens(const StackTop& top);
  FrameTokens walk_alone(const StackTop& top);
  void walk_alone(const TriePtr& trie, const StackTop& top, const ByteSet& first, FrameTokens& frame);
  bool walk_suffix_groups(const StackTop& top, const WildcardRegion& text, FrameTokens& frame);
  void drop_tokens(const Trie& trie);
  void sort_by_first_byte(FrameTokens& frame);
  void find_similar(const StackTop& top, const WildcardRegion& text, FrameTokens& frame);

  const CompiledGrammar& grammar_;
  Footprint& footprint_;
  TrieWalk& walk_;
  bool describable_ = true;
};

}  // namespace constrain
