// Computes and caches the context-independent tokens of frames.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  /// Walks with `walk`, and records in `footprint` which frames were inspected beyond their outlines. `scratch` is
  /// working memory.
  FrameTokensBuilder(const CompiledGrammar& grammar, TrieWalk& walk, Footprint& footprint, TokenSet& scratch)
      : grammar_(grammar), vocabulary_(grammar.vocabulary()), footprint_(footprint), walk_(walk), tokens_(scratch) {}

  FrameTokensPtr frame(const StackTop& top);

  /// True if every frame so far had a description.
  bool describable() const { return describable_; }

 private:
  using Key = std::vector<uint64_t>;
  /// The cached tokens of a frame, or those by suffix groups, without exceptions.
  enum class Part : uint64_t { all, groups };

  /// First bytes after which a wildcard region begins.
  struct Begun {
    WildcardRegion text;
    ByteSet first;
  };

  FrameTokensPtr portable_tokens(const StackTop& top, const Key& key);
  FrameTokensPtr entered(uint32_t node, const StackTop& top) const;
  FrameTokensPtr described_tokens(const StackTop& top, Part part, const std::function<FrameTokens()>& make);
  FrameTokens compute(const StackTop& top);
  std::vector<TriePtr> beyond(const WildcardRegion& text, const TokenClassPtr& within) const;
  FrameTokens walk_region(const StackTop& top, const WildcardRegion& text, const TokenClassPtr& within);
  std::optional<FrameTokens> walk_suffix_groups(const StackTop& top, const WildcardRegion& text,
                                                const TokenClassPtr& within);
  std::optional<FrameTokens> walk_beside_usual(const StackTop& top, const WildcardRegion& text,
                                               const TokenClassPtr& within);
  WildcardRegion region(const StackTop& top) const;
  static bool judges_most(const WildcardRegion& text);
  static bool is_within(const WildcardRegion& text, const WildcardRegion& other);
  bool starts_region(const StackTop& top, const WildcardRegion& text) const;
  bool begins(const Trie& trie, uint32_t node, const StackTop& after, std::vector<Begun>& begun) const;
  FrameTokens replace(const FrameTokens& by, std::vector<TokenId> tokens, const TriePtr& trie);
  void start(const WildcardRegion& text, const TokenClassPtr& within);
  void add_entered();
  void add_walked(const TriePtr& trie, FrameTokens& frame);
  FrameTokens finish(FrameTokens frame);

  const CompiledGrammar& grammar_;
  const Vocabulary& vocabulary_;
  Footprint& footprint_;
  TrieWalk& walk_;
  TokenSet& tokens_;
  bool describable_ = true;
};

}  // namespace constrain
