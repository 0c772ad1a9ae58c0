// The tokens of a vocabulary, sorted by how they pass through a character class.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/base/lru_cache.h"
#include "engine/text/character_class.h"
#include "engine/tokens/mask.h"
#include "engine/tokens/token_characters.h"
#include "engine/tokens/trie.h"

namespace constrain {

class Vocabulary;

/// Tokens that stay in a character class, and tokens that leave it, by the byte that does. A token that ends in the
/// middle of a character stays if the character may still become a member.
class TokenClass {
 public:
  /// Sorts the tokens below `roots`, nodes of the vocabulary's trie at the end of a character, by what follows there.
  /// `suffix_groups` is for classes below node 0 only.
  TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters, std::vector<uint32_t> roots = {0});

  /// Adds the tokens that stay and have at most `max_length` characters, those up to the root included.
  void add(uint64_t max_length, TokenSet& tokens) const;

  /// Removes the tokens that `add` adds.
  void remove(uint64_t max_length, TokenSet& tokens) const;

  /// Number of tokens that stay, of any length.
  size_t count() const { return all_->count; }

  /// Returns the tokens that leave by one of these bytes. `vocabulary` is that of the constructor, here and below.
  TriePtr leaving(const ByteSet& bytes, const Vocabulary& vocabulary) const;

  /// Groups the tokens that leave by one of these bytes by their suffix: that byte and what follows.
  TriePtr suffix_groups(const ByteSet& bytes, const Vocabulary& vocabulary) const;

  /// Lengths that `long_tokens` rounds down to.
  static constexpr std::array<uint64_t, 9> kLengthSteps = {8, 9, 10, 11, 12, 14, 16, 24, kWildcardHorizon};

  /// Returns all tokens that stay in the class for more characters than `max_length` rounded down to a step, whether
  /// they leave it later or not; possibly others with that many characters, those up to the root included. `max_length`
  /// is at least the first step.
  TriePtr long_tokens(uint64_t max_length, const Vocabulary& vocabulary) const;

  size_t bytes() const;

 private:
  static constexpr size_t kLeavingBytes = size_t{8} << 20;

  const TokenBitsPtr& up_to(size_t length) const;
  std::vector<TokenId> longer(uint64_t max_length) const;

  std::shared_ptr<const TokenCharacters> characters_;
  std::vector<uint32_t> roots_;
  std::vector<Leaving> leaving_;
  TokenBitsPtr all_;
  mutable std::array<std::once_flag, TokenCharacters::kShort + 1> up_to_made_;
  mutable std::array<TokenBitsPtr, TokenCharacters::kShort + 1> up_to_;  // by length
  mutable LruCache<TriePtr> leaving_tries_{kLeavingBytes}, suffix_groups_{kLeavingBytes};
  mutable std::array<std::once_flag, kLengthSteps.size()> long_made_;
  mutable std::array<TriePtr, kLengthSteps.size()> long_tries_;
};

using TokenClassPtr = std::shared_ptr<const TokenClass>;
using TokenClassCache = LruCache<TokenClassPtr>;

}  // namespace constrain
