// Which tokens keep a text inside a grammar, for vocabularies whose tokens do not spell every text.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/completion/completions.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Masks of a vocabulary that has no token of its own for some byte.
///
/// With such a vocabulary a text may be viable, and yet no tokens complete it. A token is allowed here only where
/// tokens lead on from it to the end of some text. Mostly the shortest completion can be spelled, which settles it;
/// else the configurations that tokens lead to are searched, up to a bound, beyond which a token is refused.
class SpelledMasks {
 public:
  explicit SpelledMasks(const CompiledGrammar& grammar);

  /// Some tokens complete the text. False also where the search for them comes to a limit.
  bool possible(const Configuration& from);

  /// The tokens after which that is so, end-of-sequence tokens included where the text may end. Throws VocabularyError
  /// where there are none.
  MaskPtr mask(const Configuration& from);

  /// Memory that it has come to take, about.
  size_t bytes() const;

 private:
  /// What one search may meet and visit: configurations, and nodes of the trie.
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
  std::vector<std::vector<Head>> levels_;  // by depth in the trie
  std::unordered_map<const Configuration*, bool> verdicts_;
  uint64_t visited_ = 0;
};

}  // namespace constrain
