// The tokens of a vocabulary, seen from within a text over some characters.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/lru_cache.h"
#include "engine/text/character_class.h"
#include "engine/tokens/mask.h"
#include "engine/tokens/trie.h"

namespace constrain {

class Vocabulary;

/// Which tokens stay within a class of characters, and by which bytes others leave it. A token that ends within a
/// character stays within the class if the character may still become one of it.
class TokenClass {
 public:
  TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters);

  /// Adds the tokens within of at most `room` characters.
  void add(uint64_t room, TokenSet& tokens) const;

  /// How many there are within, however long.
  size_t count() const { return count_; }

  /// The tokens that leave by one of some bytes. `vocabulary` is the
  /// one of the constructor.
  TriePtr leaving(const ByteSet& bytes, const Vocabulary& vocabulary) const;

  /// What follows the texts of the class in all tokens that leave by one of some bytes, that byte first, with the
  /// tokens of each in a group. Null where these are very many.
  TriePtr tails(const ByteSet& bytes, const Vocabulary& vocabulary) const;

  /// Room that `far` can be asked for, least first.
  static constexpr std::array<uint64_t, 3> kSteps = {8, 16, kWildcardHorizon};

  /// All tokens that are within for more characters than the longest step that is not more than `room`, wherever they
  /// go then. `room` is at least the first step.
  TriePtr far(uint64_t room, const Vocabulary& vocabulary) const;

  size_t bytes() const;

 private:
  static constexpr uint64_t kDense = 16;
  static constexpr size_t kMany = 1024, kManyLeaving = 8192;
  static constexpr size_t kLeavingBytes = size_t{8} << 20;

  struct Place;
  struct Within {
    uint32_t characters;
    TokenId token;
  };
  /// Everything at a node of the vocabulary's trie and below it leaves after some characters: by the node's own byte,
  /// or by a character that begins with `byte` and is certain to be an excluded one at the node.
  struct Leaving {
    uint32_t node, characters;
    uint8_t byte;
    bool by_character;
  };
  struct Far {
    uint32_t node, characters;
  };

  void walk(const Vocabulary& vocabulary, const CharacterClass& characters);
  void sort_within();
  void make_bits(size_t words);

  size_t count_;
  // Where many tokens are within: those of at most n characters, and all.
  std::vector<TokenBitsPtr> up_to_;
  TokenBitsPtr all_;
  std::vector<Within> within_;    // those that are not in `up_to_`, shortest first
  std::vector<Leaving> leaving_;  // in the order of their nodes
  std::vector<Far> far_;          // beyond the first step, in the order of their nodes
  mutable LruCache<TriePtr> leaving_tries_{kLeavingBytes}, tails_{kLeavingBytes};
  mutable std::array<std::once_flag, kSteps.size()> far_made_;
  mutable std::array<TriePtr, kSteps.size()> far_tries_;
};

using TokenClassPtr = std::shared_ptr<const TokenClass>;
using TokenClassCache = LruCache<TokenClassPtr>;

}  // namespace constrain
