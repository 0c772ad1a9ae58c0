// Sets of tokens, as results: immutable, shared, and named by a number.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/trie.h"

namespace constrain {

/// An immutable set of tokens, as a list where they are few, else as bits.
struct Mask {
  uint64_t id = 0;     ///< equal masks of a vocabulary that live at the same time have one number; never used again
  uint32_t count = 0;  ///< tokens in the set
  std::vector<TokenId> tokens;  ///< in order; empty where `words` is not
  std::vector<uint32_t> words;  ///< bit t % 32 of word t / 32

  /// Writes the set as `size` words.
  void write(uint32_t* bits, size_t size) const;

  /// The smallest token; the set must not be empty.
  TokenId first() const;

  size_t bytes() const { return sizeof(Mask) + (tokens.size() + words.size()) * sizeof(uint32_t); }
};

using MaskPtr = std::shared_ptr<const Mask>;

/// A set of tokens under construction.
class TokenSet {
 public:
  /// Empties the set, for a vocabulary whose masks have `words` words.
  void start(size_t words);

  void add(TokenId token) {
    uint32_t& word = words_[static_cast<size_t>(token) / 32];
    const uint32_t bit = 1u << (token % 32);
    if (!(word & bit) && !dense_) tokens_.push_back(token);
    word |= bit;
  }

  void add(std::span<const TokenId> tokens);

  /// The bits, to have many added at once.
  std::vector<uint32_t>& words() {
    dense_ = true;
    return words_;
  }

 private:
  friend class MaskPool;

  /// Puts the list in order.
  void sort();

  bool is_dense() const { return dense_ || tokens_.size() > kSparse; }

  /// Up to so many tokens a list takes less time and space than bits.
  static constexpr size_t kSparse = 512;
  /// Fewer are in order sooner by comparing them than by reading all bits.
  static constexpr size_t kFew = 48;

  std::vector<uint32_t> words_;
  std::vector<TokenId> tokens_;  // while the set is not dense
  bool dense_ = false;
};

/// Makes masks, and finds those that are there already. Thread-safe.
class MaskPool {
 public:
  /// The mask with this set of tokens, which is put in order.
  MaskPtr intern(TokenSet& set);

 private:
  void sweep();

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::weak_ptr<const Mask>> known_;
  size_t sweep_at_ = 1024;
};

}  // namespace constrain
