// Token masks: immutable, shared sets of tokens with a number.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/tokens/trie.h"

namespace constrain {

/// A dense set of tokens: bit t % 32 of word t / 32.
struct TokenBits {
  std::vector<uint32_t> words;
  uint32_t count = 0;
  uint64_t hash = 0;  ///< sum of the tokens' hashes, so that it does not depend on the order of insertion

  explicit TokenBits(std::vector<uint32_t> bits);
  TokenBits(std::vector<uint32_t> bits, uint32_t tokens, uint64_t sum)
      : words(std::move(bits)), count(tokens), hash(sum) {}

  static uint64_t hash_of(TokenId token) { return weight(static_cast<size_t>(token) / 32) << (token % 32); }

  bool has(TokenId token) const { return words[static_cast<size_t>(token) / 32] >> (token % 32) & 1; }
  void add(TokenId token);
  void add(const TokenBits& other);
  void remove(TokenId token);

  size_t bytes() const { return sizeof(TokenBits) + words.size() * sizeof(uint32_t); }

 private:
  /// Factor of a word's bits in the hash.
  static uint64_t weight(size_t word) {
    const uint64_t mixed = (uint64_t{word} + 1) * 0x9E3779B97F4A7C15ull;
    return (mixed ^ mixed >> 32) * 0xBF58476D1CE4E5B9ull;
  }
};

using TokenBitsPtr = std::shared_ptr<const TokenBits>;

/// An immutable set of tokens: a dense part that other sets share, and lists of how it differs from that.
struct Mask {
  uint64_t id = 0;               ///< identifies equal masks of a vocabulary while they live; never reused
  uint32_t count = 0;            ///< tokens in the set
  TokenBitsPtr many;             ///< may be null
  std::vector<TokenId> tokens;   ///< those that are not in `many`
  std::vector<TokenId> without;  ///< those of `many` that are not in the set
  size_t bytes = 0;              ///< memory of this mask alone

  bool has(TokenId token) const;

  /// Writes the set as a bitmask of `size` words.
  void write(uint32_t* bits, size_t size) const;

  /// Smallest token; the set must not be empty.
  TokenId first() const;
};

using MaskPtr = std::shared_ptr<const Mask>;

/// A set of tokens under construction.
class TokenSet {
 public:
  /// Empties the set, for bitmasks of `words` words.
  void start(size_t words);

  void add(TokenId token) { add({&token, 1}); }
  void add(std::span<const TokenId> tokens);
  void add(const TokenBitsPtr& many);
  void add(const MaskPtr& mask);
  void remove(std::span<const TokenId> tokens);

 private:
  friend class MaskPool;

  /// Longest list; more tokens are kept as bits.
  static constexpr size_t kFew = 256;

  void unfold();
  void restore(std::span<const TokenId> tokens);
  bool marked(TokenId token) const { return words_[static_cast<size_t>(token) / 32] >> (token % 32) & 1; }
  bool has(TokenId token) const { return marked(token) != (many_ && many_->has(token)); }
  void unmark(std::span<const TokenId> tokens);
  std::vector<TokenId> take_list();
  void shorten(uint32_t count, uint64_t hash);
  bool equals(const Mask& mask) const;

  MaskPtr only_;  // all of the set, as long as nothing but one mask was added
  TokenBitsPtr many_;
  bool own_ = false;              // true if `many_` is not shared
  std::vector<TokenId> tokens_;   // those that are not in `many_`
  std::vector<TokenId> without_;  // those of `many_` that are not in the set
  std::vector<uint32_t> words_;   // the bits of both lists
};

/// Interns masks: equal sets are one object. Thread-safe.
class MaskPool {
 public:
  /// Returns the mask of a set.
  MaskPtr intern(TokenSet& set);

  /// Returns the intersection of two masks of `words` words.
  MaskPtr common(const MaskPtr& one, const MaskPtr& other, size_t words);

 private:
  void sweep();

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::weak_ptr<const Mask>> interned_;
  size_t sweep_at_ = 1024;
};

}  // namespace constrain
