// Which tokens keep a text inside a grammar, and leave enough of a budget to complete it.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/completions.h"
#include "engine/mask.h"
#include "engine/trie_walk.h"

namespace constrain {

/// Masks under a budget of tokens, for the texts of one matcher and its clones.
///
/// A token may come where the completion of what it leads to still fits. The first token of the current completion
/// always does, so a text whose completion fits at the start can be completed whichever allowed tokens are taken.
/// Where tokens lead to so many different completions that measuring all would take too long, some may come only where
/// even one token for each byte would fit.
class BudgetedMasks {
 public:
  explicit BudgetedMasks(const CompiledGrammar& grammar);

  /// Fewest tokens that spell `completion`. Throws VocabularyError where none do.
  uint64_t tokens(const Configuration& from);

  /// A shortest text that completes the text so far.
  std::string completion(const Configuration& from);

  /// The tokens after which a completion of `room` tokens at most is left; null where that holds after every token that
  /// may come next. The end-of-sequence token is included where the text may end.
  MaskPtr mask(const Configuration& from, uint64_t room);

  /// Memory that it has come to take, about.
  size_t bytes() const;

 private:
  bool fits(std::span<const Head> heads);
  uint64_t tokens_after(std::span<const Head> heads);
  uint64_t measure(const Configuration& at);
  void walk(const Configuration& from);
  bool walk_out_of_free_text(const Configuration& from);

  const CompiledGrammar& grammar_;
  WalkScratch scratch_;
  TrieWalk walk_;
  Completions completions_;
  std::unordered_map<const Configuration*, uint64_t> reach_;  // most tokens left after any that may come
  std::optional<Head> last_;                                  // the stack that was measured last ...
  uint64_t last_tokens_ = 0;                                  // ... and its tokens
  uint64_t room_ = 0, most_ = 0;  // of the walk: what there is, and what the neediest token needs
  bool guessed_ = false;          // ... and whether some tokens were not measured, but judged by their bytes
  TokenSet tokens_;
};

}  // namespace constrain
