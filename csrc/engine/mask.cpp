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

Mask TokenSet::mask() {
  Mask made;
  if (dense_ || tokens_.size() > kSparse) {
    made.words = words_;
    made.count = static_cast<uint32_t>(bits::count(words_.data(), words_.size()));
  } else {
    made.tokens = tokens_;
    std::sort(made.tokens.begin(), made.tokens.end());
    made.count = static_cast<uint32_t>(tokens_.size());
  }
  return made;
}

MaskPtr MaskPool::intern(Mask mask) {
  static std::atomic<uint64_t> last_id{0};
  const uint64_t hash = mask.words.empty()
                            ? bits::hash(reinterpret_cast<const uint32_t*>(mask.tokens.data()), mask.tokens.size())
                            : bits::hash(mask.words.data(), mask.words.size());
  const std::lock_guard lock(mutex_);
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const MaskPtr known = it->second.lock();
    if (known && known->tokens == mask.tokens && known->words == mask.words) return known;
  }
  mask.id = ++last_id;
  auto made = std::make_shared<const Mask>(std::move(mask));
  known_.emplace(hash, made);
  if (known_.size() > sweep_at_) sweep();
  return made;
}

void MaskPool::sweep() {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = 2 * known_.size() + 1024;
}

}  // namespace constrain
