// Which tokens keep a text inside a grammar.
#pragma once

#include <span>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/footprint.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/inner.h"
#include "engine/masks/inner_builder.h"
#include "engine/masks/trie_walk.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Puts one mask together, from what single frames allow and from what those below make of the rest.
///
/// A token that stays within the top frame is allowed whatever is below it, so that part is kept for the frame alone
/// (`Inner`). Where the frame may be over in the middle of a token the rest is walked from the frames below. Which
/// frames that looked at, and how closely, is recorded: the mask holds wherever they agree, and is kept under their
/// descriptions.
class MaskBuilder {
 public:
  /// `configuration` is what the text so far has come to.
  MaskBuilder(const CompiledGrammar& grammar, const Configuration& configuration);

  /// The allowed tokens, end-of-sequence tokens included where the text may end.
  MaskPtr build();

 private:
  using Key = std::vector<uint64_t>;

  /// Memory that a thread keeps from one mask to the next.
  struct Scratch {
    WalkScratch walk;
    TokenSet tokens;
    Footprint footprint;
    Key key;
  };
  static Scratch& scratch();

  MaskPtr find() const;
  MaskPtr compute();
  void keep(const MaskPtr& mask) const;

  void note_frames();
  bool consulted(const Configuration& configuration) const;
  void add(const Configuration& configuration);
  void allow(std::span<const TokenId> tokens);
  void follow(std::span<const Inner::Exit> exits, const Head& head);
  bool describe(const Configuration& configuration, Detail detail, Key& key) const;

  const CompiledGrammar& grammar_;
  const Configuration& configuration_;
  TokenSet& tokens_;
  Footprint& footprint_;
  TrieWalk walk_;
  InnerBuilder inners_;
};

}  // namespace constrain
