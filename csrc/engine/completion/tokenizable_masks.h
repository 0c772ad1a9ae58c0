// Token masks for vocabularies that cannot tokenize every text.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/completion/completions.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Computes masks for a vocabulary without single-byte tokens for some bytes.
///
/// With such a vocabulary a viable text may have no tokenizable completion. A token is allowed only if tokens lead on
/// from it to the end of some text. Usually the shortest completion is tokenizable, which decides the question; else
/// the configurations that tokens lead to are searched within a bound, beyond which the token is refused.
class TokenizableMasks {
 public:
  explicit TokenizableMasks(const CompiledGrammar& grammar);

  /// True if some tokens complete the text; false also if the search reaches its bound.
  bool possible(const Configuration& from);

  /// Returns the tokens after which `possible` holds, and the end-of-sequence tokens if the text may end. Throws
  /// VocabularyError if there are none.
  MaskPtr mask(const Configuration& from);

  /// Approximate memory.
  size_t bytes() const;

 private:
  /// Bounds of one search.
  static constexpr size_t kSearchConfigurations = 2'000;
  static constexpr uint64_t kSearchNodes = 2'000'000;

  using Move = std::pair<TokenId, const Configuration*>;
  class Search;

  std::optional<bool> glance(const Configuration& at);
  std::vector<Move> moves(const Configuration& from);

  const CompiledGrammar& grammar_;
  Arena arena_;
  Registers registers_;
  ConfigurationStore store_;
  Stepper stepper_;
  Completions completions_;
  std::vector<std::vector<StackTop>> levels_;  // by depth in the trie
  std::unordered_map<const Configuration*, bool> verdicts_;
  uint64_t visited_ = 0;
};

}  // namespace constrain
