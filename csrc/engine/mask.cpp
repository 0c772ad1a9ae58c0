#include "engine/mask.h"

#include <atomic>

#include "engine/bits.h"

namespace constrain {

MaskPtr MaskPool::intern(std::vector<uint32_t> words) {
  static std::atomic<uint64_t> last_id{0};
  const uint64_t hash = bits::hash(words.data(), words.size());
  const std::lock_guard lock(mutex_);
  const auto [first, last] = known_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (MaskPtr mask = it->second.lock(); mask && mask->words == words) return mask;
  }
  const auto tokens = static_cast<uint32_t>(bits::count(words.data(), words.size()));
  auto mask = std::make_shared<const Mask>(Mask{++last_id, tokens, std::move(words)});
  known_.emplace(hash, mask);
  if (known_.size() > sweep_at_) sweep();
  return mask;
}

void MaskPool::sweep() {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = 2 * known_.size() + 1024;
}

}  // namespace constrain
