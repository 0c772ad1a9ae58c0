// The tokens of a vocabulary, seen from within a text over some characters.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/free_text.h"
#include "engine/lru_cache.h"
#include "engine/trie.h"

namespace constrain {

class Vocabulary;

/// Which tokens stay within a class of characters, and which leave it by certain bytes. A token that ends within a
/// character stays within the class if the character may still become one of it.
struct TokenClass {
  static constexpr uint64_t kDense = 16;

  std::vector<std::vector<uint32_t>> up_to;  ///< masks of the tokens within of at most n characters, n <= kDense
  std::vector<uint32_t> all;                 ///< mask of all tokens within
  std::vector<std::pair<uint32_t, TokenId>> long_ones;  ///< those beyond kDense with their length, shortest first
  Trie leaving;  ///< of the tokens that leave after at most FreeTextFinder::kHorizon characters
  Trie far;      ///< of all tokens that are within for more than that, wherever they go then

  /// Adds the tokens within of at most `room` characters to a mask.
  void add(uint64_t room, std::vector<uint32_t>& mask) const;

  size_t bytes() const;
};

using TokenClassPtr = std::shared_ptr<const TokenClass>;
using TokenClassCache = LruCache<TokenClassPtr>;

/// Sorts the tokens of a vocabulary. `leaving`: bytes outside the class.
TokenClass make_token_class(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving);

}  // namespace constrain
