#include "engine/tokens/mask.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "engine/base/bits.h"

namespace constrain {

TokenBits::TokenBits(std::vector<uint32_t> bits) : words(std::move(bits)) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i]) continue;
    count += static_cast<uint32_t>(std::popcount(words[i]));
    hash += weight(i) * words[i];
  }
}

void TokenBits::add(TokenId token) {
  if (has(token)) return;
  bits::set(words.data(), static_cast<size_t>(token));
  ++count;
  hash += hash_of(token);
}

void TokenBits::add(const TokenBits& other) {
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t fresh = other.words[i] & ~words[i];
    if (!fresh) continue;
    words[i] |= fresh;
    count += static_cast<uint32_t>(std::popcount(fresh));
    hash += weight(i) * fresh;
  }
}

void TokenBits::remove(TokenId token) {
  if (!has(token)) return;
  words[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  --count;
  hash -= hash_of(token);
}

void Mask::write(uint32_t* bits, size_t size) const {
  if (many) {
    std::memcpy(bits, many->words.data(), size * sizeof(uint32_t));
  } else {
    std::memset(bits, 0, size * sizeof(uint32_t));
  }
  for (const TokenId token : tokens) bits::set(bits, static_cast<size_t>(token));
}

TokenId Mask::first() const {
  if (!tokens.empty() && !many) return std::ranges::min(tokens);
  const auto word = std::ranges::find_if(many->words, [](uint32_t bits) { return bits != 0; });
  const auto least = static_cast<TokenId>((word - many->words.begin()) * 32 + std::countr_zero(*word));
  return tokens.empty() ? least : std::min(least, std::ranges::min(tokens));
}

void TokenSet::start(size_t words) {
  for (const TokenId token : tokens_) words_[static_cast<size_t>(token) / 32] = 0;
  tokens_.clear();
  words_.resize(words);
  only_ = nullptr;
  many_ = nullptr;
  own_ = false;
}

/// Adds the tokens of the only mask, which others join.
void TokenSet::unfold() {
  if (const MaskPtr mask = std::exchange(only_, nullptr)) {
    if (mask->many) add(mask->many);
    add(mask->tokens);
  }
}

/// Empties the list and returns its contents.
std::vector<TokenId> TokenSet::take_list() {
  for (const TokenId token : tokens_) words_[static_cast<size_t>(token) / 32] = 0;
  return std::exchange(tokens_, {});
}

void TokenSet::add(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  unfold();
  const uint32_t* many = many_ ? many_->words.data() : nullptr;
  size_t count = tokens_.size();
  tokens_.resize(count + tokens.size());
  for (const TokenId token : tokens) {
    const size_t at = static_cast<size_t>(token) / 32;
    const uint32_t bit = 1u << (token % 32);
    // A token that is in the set already is overwritten by the next one.
    tokens_[count] = token;
    count += !((words_[at] | (many ? many[at] : 0)) & bit);
    words_[at] |= many ? bit & ~many[at] : bit;
  }
  tokens_.resize(count);
}

void TokenSet::add(const TokenBitsPtr& many) {
  unfold();
  if (many == many_) return;
  if (many_) {
    const bool larger = many->count > many_->count;
    auto both = std::make_shared<TokenBits>(larger ? *many : *many_);
    both->add(larger ? *many_ : *many);
    many_ = std::move(both);
    own_ = true;
  } else {
    many_ = many;
  }
  if (tokens_.empty()) return;
  const std::vector<TokenId> others = take_list();
  add(others);
}

void TokenSet::add(const MaskPtr& mask) {
  const bool empty = !only_ && !many_ && tokens_.empty();
  unfold();
  only_ = mask;
  if (!empty) unfold();
}

void TokenSet::remove(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  unfold();
  bool some = false;
  for (const TokenId token : tokens) {
    some |= many_ && many_->has(token);
    words_[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  }
  std::erase_if(tokens_, [this](TokenId token) { return !listed(token); });
  if (!some) return;
  auto rest = std::make_shared<TokenBits>(*many_);
  for (const TokenId token : tokens) rest->remove(token);
  many_ = std::move(rest);
  own_ = true;
}

/// Turns a long list into bits. The arguments are those of the whole set.
void TokenSet::shorten(uint32_t count, uint64_t hash) {
  if (tokens_.size() <= kFew) return;
  std::vector<uint32_t> all = words_;
  for (size_t i = 0; many_ && i < all.size(); ++i) all[i] |= many_->words[i];
  many_ = std::make_shared<const TokenBits>(std::move(all), count, hash);
  own_ = true;
  take_list();
}

/// Compares with a mask of the same size.
bool TokenSet::equals(const Mask& mask) const {
  const auto has = [this](TokenId token) { return listed(token) || (many_ && many_->has(token)); };
  if (!std::ranges::all_of(mask.tokens, has)) return false;
  if (!mask.many || mask.many == many_) return true;
  const std::vector<uint32_t>& own = many_ ? many_->words : words_;
  uint32_t beyond = 0;  // without an early end, which compilers make no vectors of
  for (size_t i = 0; i < words_.size(); ++i) beyond |= mask.many->words[i] & ~(words_[i] | own[i]);
  return beyond == 0;
}

MaskPtr MaskPool::intern(TokenSet& set) {
  static std::atomic<uint64_t> last_id{0};
  if (set.only_) return set.only_;
  uint64_t hash = set.many_ ? set.many_->hash : 0;
  for (const TokenId token : set.tokens_) hash += TokenBits::hash_of(token);
  const auto count = static_cast<uint32_t>((set.many_ ? set.many_->count : 0) + set.tokens_.size());
  const std::lock_guard lock(mutex_);
  const auto [first, last] = interned_.equal_range(hash);
  auto expired = last;
  for (auto it = first; it != last; ++it) {
    const MaskPtr cached = it->second.lock();
    if (!cached) expired = it;
    if (cached && cached->count == count && set.equals(*cached)) return cached;
  }
  set.shorten(count, hash);
  auto made = std::make_shared<Mask>();
  made->id = ++last_id;
  made->count = count;
  made->many = set.many_;
  made->tokens = set.tokens_;
  made->bytes = sizeof(Mask) + set.tokens_.size() * sizeof(TokenId) + (set.own_ ? set.many_->bytes() : 0);
  // Masks recur after the grammar they were made for is gone, and leave an expired entry.
  if (expired != last) {
    expired->second = made;
  } else {
    interned_.emplace(hash, made);
    if (interned_.size() > sweep_at_) sweep();
  }
  return made;
}

MaskPtr MaskPool::common(const MaskPtr& one, const MaskPtr& other, size_t words) {
  std::vector<uint32_t> both(words), others(words);
  one->write(both.data(), words);
  other->write(others.data(), words);
  uint32_t beyond = 0;
  for (size_t i = 0; i < words; ++i) {
    beyond |= both[i] & ~others[i];
    both[i] &= others[i];
  }
  if (!beyond) return one;
  std::vector<TokenId> tokens;
  const auto word = [&](size_t i) { return both[i]; };
  bits::for_each(words, word, [&](size_t token) { tokens.push_back(static_cast<TokenId>(token)); });
  TokenSet set;
  set.start(words);
  set.add(tokens);
  return intern(set);
}

void MaskPool::sweep() {
  std::erase_if(interned_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = 2 * interned_.size() + 1024;
}

}  // namespace constrain
