// A bounded table that forgets what was not used for longest.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace constrain {

/// Keys are sequences of words. Values are cheap to copy, such as shared pointers. Thread-safe.
template <class Value>
class LruCache {
 public:
  using Key = std::vector<uint64_t>;

  explicit LruCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  std::optional<Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto it = index_.find(&key);
    if (it == index_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->value;
  }

  /// `bytes` is what the value takes beside its key. Where the key is known already the new value takes its place.
  void keep(Key key, Value value, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (const auto it = index_.find(&key); it != index_.end()) forget(it->second);
    bytes += key.size() * sizeof(uint64_t) + kOverhead;
    entries_.push_front({std::move(key), std::move(value), bytes});
    index_.emplace(&entries_.front().key, entries_.begin());
    bytes_ += bytes;
    while (bytes_ > max_bytes_ && entries_.size() > 1) forget(std::prev(entries_.end()));
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static constexpr size_t kOverhead = 160;  // of the list and the index

  struct Entry {
    Key key;
    Value value;
    size_t bytes;
  };
  using Place = typename std::list<Entry>::iterator;
  struct Hash {
    size_t operator()(const Key* key) const {
      uint64_t hash = key->size();
      for (const uint64_t word : *key) hash = (hash ^ word) * 0x9FB21C651E98DF25ull, hash ^= hash >> 29;
      return hash;
    }
  };
  struct Equal {
    bool operator()(const Key* a, const Key* b) const { return *a == *b; }
  };

  void forget(Place place) {
    bytes_ -= place->bytes;
    index_.erase(&place->key);
    entries_.erase(place);
  }

  mutable std::mutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<const Key*, Place, Hash, Equal> index_;
  size_t max_bytes_, bytes_ = 0;
};

}  // namespace constrain
