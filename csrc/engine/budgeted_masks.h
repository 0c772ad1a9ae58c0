// Which tokens keep a text inside a grammar, and leave enough of a budget to complete it.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/completion_bounds.h"
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

  /// Told at once, where `room` is so far above what completions need that no token comes near it: one of `room` tokens
  /// is left for the text and after every token that may come next. The text's mask must have been made.
  bool surely_fit(const Configuration& from, uint64_t room) {
    return one_for_each_byte_ && bounds_.after_any_token(from) <= room;
  }

  /// Whether they are at most `room`, which is told faster.
  bool fits(const Configuration& from, uint64_t room);

  /// A shortest text that completes the text so far.
  std::string completion(const Configuration& from);

  /// The tokens after which a completion of `room` tokens at most is left; null where that holds after every token that
  /// may come next. The end-of-sequence token is included where the text may end.
  MaskPtr mask(const Configuration& from, uint64_t room);

  /// Memory that it has come to take, about.
  size_t bytes() const;

 private:
  bool admits(std::span<const Head> heads);
  uint64_t tokens_after(std::span<const Head> heads);
  uint64_t measure(const Configuration& at);
  bool bytes_fit(uint64_t bytes, uint64_t room) const { return one_for_each_byte_ && bytes <= room; }
  void walk(const Configuration& from);
  bool all_fit(const Configuration& from);
  uint64_t within_top(const Head& head, uint64_t growth);
  bool walk_out_of_free_text(const Configuration& from);

  const CompiledGrammar& grammar_;
  WalkScratch scratch_;
  TrieWalk walk_;
  Completions completions_;
  CompletionBounds bounds_;
  bool one_for_each_byte_;  // no text takes more tokens than it has bytes, all of which are counted
  std::unordered_map<const Configuration*, uint64_t> reach_;  // most tokens left after any that may come
  std::optional<Head> last_;                                  // the stack that was measured last ...
  uint64_t last_tokens_ = 0;                                  // ... and its tokens
  const Configuration* from_ = nullptr;                       // of the walk
  uint64_t room_ = 0, most_ = 0;  // ... what there is, and what the neediest token needs, or a little more
  bool measuring_ = false;        // ... whether completions are measured, and not only their bytes
  bool guessed_ = false;          // ... and whether some that should be were not
  TokenSet tokens_;
};

}  // namespace constrain
