// The tokens of a vocabulary, seen from within a text over some characters.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/free_text.h"
#include "engine/lru_cache.h"
#include "engine/mask.h"
#include "engine/trie.h"

namespace constrain {

class Vocabulary;

/// Which tokens stay within a class of characters, and which leave it by certain bytes. A token that ends within a
/// character stays within the class if the character may still become one of it.
class TokenClass {
 public:
  /// `leaving`: bytes outside the class.
  TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving);

  /// Adds the tokens within of at most `room` characters.
  void add(uint64_t room, TokenSet& tokens) const;

  /// The tokens that leave by one of the bytes after at most FreeTextFinder::kHorizon characters.
  const Trie& leaving() const { return leaving_; }

  /// Room that `far` can be asked for, least first.
  static constexpr std::array<uint64_t, 3> kSteps = {8, 16, FreeTextFinder::kHorizon};

  /// All tokens that are within for more characters than the longest step that is not more than `room`, wherever they
  /// go then. `room` is at least the first step; `vocabulary` is the one of the constructor.
  const Trie& far(uint64_t room, const Vocabulary& vocabulary) const;

  size_t bytes() const;

 private:
  static constexpr uint64_t kDense = 16;
  static constexpr size_t kMany = 1024;

  struct Place;
  struct Far {
    uint32_t characters;
    TokenId token;
  };

  void keep(const Vocabulary& vocabulary, TokenId token, uint32_t characters);
  void make_masks(size_t words);

  std::vector<std::pair<uint32_t, TokenId>> within_;  // with their length, shortest first
  // Where there are many: masks of those of at most n characters, and how many of `within_` these are.
  std::vector<std::vector<uint32_t>> up_to_;
  std::vector<size_t> counts_;
  Trie leaving_;
  std::vector<Far> far_tokens_;  // beyond the first step, in the order of their bytes
  mutable std::array<std::once_flag, kSteps.size()> far_made_;
  mutable std::array<Trie, kSteps.size()> far_;
};

using TokenClassPtr = std::shared_ptr<const TokenClass>;
using TokenClassCache = LruCache<TokenClassPtr>;

}  // namespace constrain
