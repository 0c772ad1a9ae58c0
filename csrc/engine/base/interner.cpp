#include "engine/base/interner.h"

#include <algorithm>

namespace constrain {

namespace {

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
  reserve(words_, words_.size() + key.size());
  reserve(ends_, ends_.size() + 1);
  words_.insert(words_.end(), key.begin(), key.end());
  ends_.push_back(words_.size());
  slots_[slot] = static_cast<uint32_t>(size());
  return static_cast<uint32_t>(size() - 1);
}

template <class Element>
void SequenceInterner::reserve(std::vector<Element>& list, size_t size) {
  if (size <= list.capacity()) return;
  const size_t capacity = std::max({size, 2 * list.capacity(), kFirst});
  memory_.add((capacity - list.capacity()) * sizeof(Element));
  list.reserve(capacity);
}

void SequenceInterner::grow() {
  const size_t length = std::max<size_t>(16, slots_.size() * 2);
  reserve(slots_, length);
  slots_.assign(length, 0);
  const size_t mask = slots_.size() - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    size_t slot = hash_words((*this)[id]) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = id + 1;
  }
}

}  // namespace constrain
