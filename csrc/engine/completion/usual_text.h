// Texts that all lead to one configuration, as those within a string or a new key.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/trie_walk.h"
#include "engine/text/character_class.h"

namespace constrain {

/// Text of a wildcard region that leads to one configuration, whatever it is, if it has none of the tokens in `unlike`.
struct UsualText {
  const Configuration* from = nullptr;  ///< before the text
  const Configuration* after = nullptr;
  CharacterClass characters;
  ByteSet leaving;
  bool over = false;  ///< true if a frame may be over on the way, and its parent go on over the rest of the text
  std::vector<TokenId> unlike;
};

/// Finds the usual text of a configuration.
class UsualTextFinder {
 public:
  /// Makes configurations in the store of `walk`, which interns, and counts the nodes that it visits with those of it.
  UsualTextFinder(const CompiledGrammar& grammar, TrieWalk& walk) : grammar_(grammar), walk_(walk) {}

  /// The text after a configuration, valid until the next call; null if there is none.
  const UsualText* from(const Configuration& from);

  /// Moves a stack top over an arbitrary text of its region, apart from exceptions; none if the text matters.
  std::optional<StackTop> any_text(const StackTop& top, std::vector<std::string>& exceptions);

 private:
  std::optional<UsualText> find(const Configuration& from);
  std::vector<StackTop> readers(const Configuration& from);
  bool list_unlike(const std::vector<StackTop>& tops, std::vector<TokenId>& unlike);
  void add_beginnings(const std::vector<std::string>& texts, std::vector<TokenId>& out) const;

  const CompiledGrammar& grammar_;
  TrieWalk& walk_;
  UsualText last_;  // all of a key has one configuration
};

}  // namespace constrain
