// How the tokens of a vocabulary fall into characters.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/text/character_class.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// A largest subtree of a trie whose strings leave a character class after some characters: by the byte of `node`, or
/// because the character that begins with `byte` is certain not to be a member.
struct Leaving {
  uint32_t node, characters;
  uint8_t byte;
  bool by_character;
};

/// An index of a vocabulary's trie by characters, by which a class sorts the tokens without a walk. Characters count
/// from their first byte on.
class TokenCharacters {
 public:
  /// Most characters of short tokens.
  static constexpr uint32_t kShort = 16;

  /// `duplicates` holds the next token with the same bytes, or kNoToken, of each token.
  TokenCharacters(TriePtr trie, std::span<const TokenId> duplicates);

  /// Characters of a node's string.
  uint32_t count(uint32_t node) const { return count_[node]; }

  /// The tokens of the nodes from `first` up to `last`, which is not among them.
  std::span<const TokenId> tokens(uint32_t first, uint32_t last) const {
    return std::span(tokens_).subspan(before_[first], before_[last] - before_[first]);
  }

  /// Bitmask of the tokens of at most `characters`, which is at most `kShort`.
  std::span<const uint32_t> up_to(size_t characters) const { return up_to_[characters]; }

  /// The tokens that are not short, with their characters, by these.
  std::span<const std::pair<uint32_t, TokenId>> long_tokens() const { return long_; }

  /// The nodes of tokens of more characters than TokenClass::kLengthSteps begin with, in order.
  std::span<const uint32_t> long_nodes() const { return long_nodes_; }

  /// The subtrees below `roots`, each the end of a character, that leave a class, in order. Their characters count from
  /// there.
  std::vector<Leaving> leaving(const CharacterClass& within, std::span<const uint32_t> roots) const;

 private:
  // How strings end: with an ASCII character, by which; with a byte of another one; with a byte that begins none; or
  // where a byte breaks a character, by the first byte of that, which is greater.
  static constexpr uint8_t kPart = 0x80, kStray = 0x81;

  struct Place;
  /// A node at a byte of a character beyond ASCII, and the characters that this may be.
  struct Beyond {
    char32_t first, last;
    uint32_t node;
  };

  uint8_t step(const Place& from, uint32_t node, Place& to);
  void list_tokens(std::span<const TokenId> duplicates);

  TriePtr trie_;
  std::vector<uint16_t> count_;
  std::vector<uint8_t> lead_;                     // by node, the first byte of the last character
  std::vector<bool> begins_;                      // by node, true if its byte is that one
  std::vector<uint8_t> ends_;                     // by node, how its string ends
  std::array<std::vector<uint32_t>, 256> nodes_;  // by how they end
  std::vector<uint32_t> no_ascii_;                // bitmask of the nodes that do not end with an ASCII character
  std::vector<Beyond> beyond_;                    // by the first character
  std::vector<TokenId> tokens_;                   // in the order of the trie
  std::vector<uint32_t> before_;                  // by node, how many of `tokens_` come before it
  std::array<std::vector<uint32_t>, kShort + 1> up_to_;
  std::vector<std::pair<uint32_t, TokenId>> long_;
  std::vector<uint32_t> long_nodes_;
};

}  // namespace constrain
