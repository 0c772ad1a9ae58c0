#include "engine/tokens/mask.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

#include "engine/base/bits.h"

namespace constrain {

namespace {

/// Like std::popcount, which without the instruction is a call, and no loop of which becomes vectors.
uint32_t bit_count(uint32_t word) {
  word -= word >> 1 & 0x55555555;
  word = (word & 0x33333333) + (word >> 2 & 0x33333333);
  return ((word + (word >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

}  // namespace

TokenBits::TokenBits(std::vector<uint32_t> bits) : words(std::move(bits)) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i]) continue;
    count += bit_count(words[i]);
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
    count += bit_count(fresh);
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
  for (const TokenId token : without) bits::clear(bits, static_cast<size_t>(token));
}

bool Mask::has(TokenId token) const {
  const bool has_word = many && token >= 0 && static_cast<size_t>(token) / 32 < many->words.size();
  if (has_word && many->has(token)) return std::ranges::find(without, token) == without.end();
  return std::ranges::find(tokens, token) != tokens.end();
}

TokenId Mask::first() const {
  if (!many) return std::ranges::min(tokens);
  std::vector<uint32_t> words(many->words.size());
  write(words.data(), words.size());
  return static_cast<TokenId>(bits::next(words, 0));
}

void TokenSet::start(size_t words) {
  unmark(tokens_), unmark(without_);
  tokens_.clear(), without_.clear();
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
    remove(mask->without);
  }
}

void TokenSet::unmark(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) bits::clear(words_.data(), static_cast<size_t>(token));
}

/// Takes tokens back that were removed.
void TokenSet::restore(std::span<const TokenId> tokens) {
  if (without_.empty()) return;
  for (const TokenId token : tokens) {
    if (many_->has(token)) unmark({&token, 1});
  }
  std::erase_if(without_, [this](TokenId token) { return !marked(token); });
}

/// Empties the list and returns its contents.
std::vector<TokenId> TokenSet::take_list() {
  unmark(tokens_);
  return std::exchange(tokens_, {});
}

void TokenSet::add(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  unfold();
  restore(tokens);
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
  std::vector<TokenId> gone = std::exchange(without_, {});
  unmark(gone);
  if (many == many_) return;
  std::erase_if(gone, [&](TokenId token) { return many->has(token); });
  if (many_) {
    const bool larger = many->count > many_->count;
    auto both = std::make_shared<TokenBits>(larger ? *many : *many_);
    both->add(larger ? *many_ : *many);
    many_ = std::move(both);
    own_ = true;
  } else {
    many_ = many;
  }
  if (!tokens_.empty()) {
    const std::vector<TokenId> others = take_list();
    add(others);
  }
  remove(gone);
}

void TokenSet::add(const MaskPtr& mask) {
  if (mask == only_) return;
  unfold();
  const bool empty = !many_ && tokens_.empty();
  if (empty) {
    only_ = mask;
  } else if (mask->many) {
    std::vector<TokenId> gone;
    std::ranges::copy_if(mask->without, std::back_inserter(gone), [this](TokenId token) { return !has(token); });
    add(mask->many);
    remove(gone);
  }
  if (!empty) add(mask->tokens);
}

void TokenSet::remove(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  unfold();
  bool listed = false;
  for (const TokenId token : tokens) {
    if (!has(token)) continue;
    if (many_ && many_->has(token)) {
      bits::set(words_.data(), static_cast<size_t>(token));
      without_.push_back(token);
    } else {
      unmark({&token, 1});
      listed = true;
    }
  }
  if (listed) std::erase_if(tokens_, [this](TokenId token) { return !marked(token); });
}

/// Turns long lists into bits. The arguments are those of the whole set.
void TokenSet::shorten(uint32_t count, uint64_t hash) {
  if (tokens_.size() + without_.size() <= kFew) return;
  std::vector<uint32_t> all = words_;
  for (size_t i = 0; many_ && i < all.size(); ++i) all[i] ^= many_->words[i];
  many_ = std::make_shared<const TokenBits>(std::move(all), count, hash);
  own_ = true;
  take_list();
  unmark(without_);
  without_.clear();
}

/// Compares with a mask of the same size.
bool TokenSet::equals(const Mask& mask) const {
  if (!std::ranges::all_of(mask.tokens, [this](TokenId token) { return has(token); })) return false;
  if (!mask.many) return true;
  if (std::ranges::any_of(mask.without, [this](TokenId token) { return has(token); })) return false;
  if (mask.many == many_) return mask.without.size() == without_.size();
  // Equal if the set has all of the dense part but those tokens, which are few: most blocks of words lack none.
  constexpr size_t kBlock = 16;
  const uint32_t *many = many_ ? many_->words.data() : nullptr, *its = mask.many->words.data();
  const auto lacks = [&](size_t i) { return its[i] & ~(words_[i] ^ (many ? many[i] : 0)); };
  uint32_t lacking = 0;
  for (size_t i = 0; i < words_.size(); i += kBlock) {
    const size_t end = std::min(i + kBlock, words_.size());
    uint32_t any = 0;
    for (size_t k = i; k < end; ++k) any |= lacks(k);
    for (size_t k = i; any && k < end; ++k) lacking += bit_count(lacks(k));
  }
  return lacking == mask.without.size();
}

MaskPtr MaskPool::intern(TokenSet& set) {
  static std::atomic<uint64_t> last_id{0};
  if (set.only_) return set.only_;
  uint64_t hash = set.many_ ? set.many_->hash : 0;
  for (const TokenId token : set.tokens_) hash += TokenBits::hash_of(token);
  for (const TokenId token : set.without_) hash -= TokenBits::hash_of(token);
  const auto count =
      static_cast<uint32_t>((set.many_ ? set.many_->count : 0) + set.tokens_.size() - set.without_.size());
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
  made->without = set.without_;
  const size_t listed = set.tokens_.size() + set.without_.size();
  made->bytes = sizeof(Mask) + listed * sizeof(TokenId) + (set.own_ ? set.many_->bytes() : 0);
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
