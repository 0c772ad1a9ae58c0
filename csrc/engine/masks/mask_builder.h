// Computes token masks: the tokens that a grammar (JSON Schema, regular expression, CFG) allows next.
#pragma once

#include <span>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/footprint.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/frame_tokens.h"
#include "engine/masks/frame_tokens_builder.h"
#include "engine/masks/trie_walk.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Builds the mask of one configuration from the context-independent tokens of its top frames, and from walks with
/// their parents.
///
/// A token that stays within the top frame is allowed whatever its parents are, so these tokens are cached for the
/// frame alone (`FrameTokens`). From boundary nodes, where the frame may be over in the middle of a token, the trie is
/// walked with the parents. The footprint of a mask records which frames were inspected and how closely; the mask is
/// cached under the descriptions of these frames.
class MaskBuilder {
 public:
  /// Returns the tokens allowed after a text whose parse state is `configuration`, and the end-of-sequence tokens if
  /// the text may end.
  static MaskPtr mask(const CompiledGrammar& grammar, const Configuration& configuration);

 private:
  using Key = std::vector<uint64_t>;

  /// Working memory of a thread, reused by all masks.
  struct Scratch {
    WalkScratch walk;
    TokenSet tokens, frame_tokens;
    Footprint footprint;
    Key key;
  };
  static Scratch& scratch();

  MaskBuilder(const CompiledGrammar& grammar, const Configuration& configuration);

  static MaskPtr find(const CompiledGrammar& grammar, const Configuration& configuration);
  static bool describe(const CompiledGrammar& grammar, const Configuration& configuration, Detail detail, Key& key);
  MaskPtr build();
  MaskPtr compute();
  void store(const MaskPtr& mask) const;

  void note_frames();
  bool consulted(const Configuration& configuration) const;
  const Configuration& readers(const Configuration& configuration);
  void add(const Configuration& configuration);
  void follow(const Exits& exits, const Configuration& parents);

  const CompiledGrammar& grammar_;
  const Configuration& configuration_;
  TokenSet& tokens_;
  Footprint& footprint_;
  TrieWalk walk_;
  FrameTokensBuilder frame_tokens_;
};

}  // namespace constrain
