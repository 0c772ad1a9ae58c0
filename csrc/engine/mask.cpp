#include "engine/mask.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "engine/bits.h"

namespace constrain {

void Mask::write(uint32_t* bits, size_t size) const {
  if (!words.empty()) {
    std::memcpy(bits, words.data(), size * sizeof(uint32_t));
    return;
  }
  std::memset(bits, 0, size * sizeof(uint32_t));
  for (const TokenId token : tokens) bits::set(bits, static_cast<size_t>(token));
}

TokenId Mask::first() const {
  if (!tokens.empty()) return tokens.front();
  const auto word = std::find_if(words.begin(), words.end(), [](uint32_t bits) { return bits != 0; });
  return static_cast<TokenId>((word - words.begin()) * 32 + std::countr_zero(*word));
}

void TokenSet::start(size_t words) {
  if (!dense_ && words_.size() == words) {
    for (const TokenId token : tokens_) words_[static_cast<size_t>(token) / 32] = 0;
  } else {
    words_.assign(words, 0);
  }
  tokens_.clear();
  dense_ = false;
}

void TokenSet::add(std::span<const TokenId> tokens) {
  if (dense_) {
    for (const TokenId token : tokens) bits::set(words_.data(), static_cast<size_t>(token));
    return;
  }
  size_t count = tokens_.size();
  tokens_.resize(count + tokens.size());
  for (const TokenId token : tokens) {
    uint32_t& word = words_[static_cast<size_t>(token) / 32];
    const uint32_t bit = 1u << (token % 32);
    // One that is there already is written over.
    tokens_[count] = token;
    count += !(word & bit);
    word |= bit;
  }
  tokens_.resize(count);
}

void TokenSet::sort() {
  if (tokens_.size() < kFew) {
    std::ranges::sort(tokens_);
    return;
  }
  // The bits have them in order.
  tokens_.clear();
  bits::for_each(words_.data(), words_.size(), [&](size_t bit) { tokens_.push_back(static_cast<TokenId>(bit)); });
}

MaskPtr MaskPool::intern(TokenSet& set) {
  static std::atomic<uint64_t> last_id{0};
  const bool dense = set.is_dense();
  if (!dense) set.sort();
  const auto* list = reinterpret_cast<const uint32_t*>(set.tokens_.data());
  const uint64_t hash = dense ? bits::hash(set.words_.data(), set.words_.size()) : bits::hash(list, set.tokens_.size());
  const std::lock_guard lock(mutex_);
  const auto [first, last] = known_.equal_range(hash);
  auto expired = last;
  for (auto it = first; it != last; ++it) {
    const MaskPtr known = it->second.lock();
    if (!known) expired = it;
    if (known && known->words.empty() == !dense &&
        (dense ? known->words == set.words_ : known->tokens == set.tokens_)) {
      return known;
    }
  }
  auto made = std::make_shared<Mask>();
  made->id = ++last_id;
  if (dense) {
    made->words = set.words_;
    made->count = static_cast<uint32_t>(bits::count(set.words_.data(), set.words_.size()));
  } else {
    made->tokens = set.tokens_;
    made->count = static_cast<uint32_t>(set.tokens_.size());
  }
  // Masks come again after the grammar that they were made for has gone.
  if (expired != last) {
    expired->second = made;
  } else {
    known_.emplace(hash, made);
    if (known_.size() > sweep_at_) sweep();
  }
  return made;
}

void MaskPool::sweep() {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = 2 * known_.size() + 1024;
}

}  // namespace constrain
