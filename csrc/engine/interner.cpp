#include "engine/interner.h"

#include <algorithm>

namespace constrain {

namespace {

/// Of an id beside its key: its end, and its slots in a table that is half empty.
constexpr size_t kEntryBytes = sizeof(size_t) + 3 * sizeof(uint32_t);

size_t hash_words(std::span<const uint32_t> key) {
  uint64_t hash = 0x9E3779B97F4A7C15u + key.size();
  for (uint32_t word : key) {
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

uint32_t SequenceInterner::intern(std::span<const uint32_t> key) {
  if (slots_.size() < 2 * (size() + 1)) grow();
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_words(key) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (std::ranges::equal((*this)[slots_[slot] - 1], key)) return slots_[slot] - 1;
  }
  words_.insert(words_.end(), key.begin(), key.end());
  ends_.push_back(words_.size());
  slots_[slot] = static_cast<uint32_t>(size());
  memory_.add(key.size_bytes() + kEntryBytes);
  return static_cast<uint32_t>(size() - 1);
}

void SequenceInterner::grow() {
  slots_.assign(std::max<size_t>(16, slots_.size() * 2), 0);
  const size_t mask = slots_.size() - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    size_t slot = hash_words((*this)[id]) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = id + 1;
  }
}

}  // namespace constrain
