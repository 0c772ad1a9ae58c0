// A least-recently-used cache with a memory limit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace constrain {

/// Maps sequences of words to values that are cheap to copy, such as shared pointers. Thread-safe.
template <class Value>
class LruCache {
 public:
  using Key = std::span<const uint64_t>;

  explicit LruCache(size_t max_bytes) : max_bytes_(max_bytes) {}
  ~LruCache() {
    while (oldest_) forget(oldest_);
  }
  LruCache(const LruCache&) = delete;
  LruCache& operator=(const LruCache&) = delete;

  std::optional<Value> find(Key key) {
    const uint64_t hash = hash_of(key);
    const std::lock_guard lock(mutex_);
    Entry* found = entry(key, hash);
    if (!found) return std::nullopt;
    unlink(found);
    put_first(found);
    return found->value;
  }

  /// Inserts or replaces a value. `bytes` is its memory besides the key.
  void put(Key key, Value value, size_t bytes) {
    const uint64_t hash = hash_of(key);
    const std::lock_guard lock(mutex_);
    if (Entry* cached = entry(key, hash)) forget(cached);
    if (count_ >= buckets_.size()) grow();
    Entry* made = new (::operator new(sizeof(Entry) + key.size_bytes()))
        Entry{std::move(value), hash, bytes + sizeof(Entry) + key.size_bytes() + kOverhead, key.size()};
    std::ranges::copy(key, made->words());
    chain(made);
    put_first(made);
    ++count_;
    bytes_ += made->bytes;
    while (bytes_ > max_bytes_ && oldest_ != made) forget(oldest_);
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static constexpr size_t kOverhead = 32;  // memory of an allocation and of the buckets

  /// An entry; the words of its key follow in memory.
  struct Entry {
    Value value;
    uint64_t hash;
    size_t bytes, size;
    Entry* next = nullptr;  ///< next in the bucket
    Entry *newer = nullptr, *older = nullptr;

    uint64_t* words() { return reinterpret_cast<uint64_t*>(this + 1); }
    bool matches(Key key) { return size == key.size() && std::memcmp(words(), key.data(), key.size_bytes()) == 0; }
  };

  static uint64_t hash_of(Key key) {
    uint64_t hash = key.size();
    for (const uint64_t word : key) hash = (hash ^ word) * 0x9FB21C651E98DF25ull, hash ^= hash >> 29;
    return hash;
  }

  Entry*& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  Entry* entry(Key key, uint64_t hash) {
    if (buckets_.empty()) return nullptr;
    for (Entry* at = bucket(hash); at; at = at->next) {
      if (at->hash == hash && at->matches(key)) return at;
    }
    return nullptr;
  }

  void chain(Entry* made) { made->next = std::exchange(bucket(made->hash), made); }

  void grow() {
    buckets_.assign(std::max<size_t>(16, 2 * buckets_.size()), nullptr);
    for (Entry* at = newest_; at; at = at->older) chain(at);
  }

  void put_first(Entry* entry) {
    entry->newer = nullptr;
    entry->older = newest_;
    (newest_ ? newest_->newer : oldest_) = entry;
    newest_ = entry;
  }

  void unlink(Entry* entry) {
    (entry->newer ? entry->newer->older : newest_) = entry->older;
    (entry->older ? entry->older->newer : oldest_) = entry->newer;
  }

  void forget(Entry* entry) {
    Entry** at = &bucket(entry->hash);
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    unlink(entry);
    bytes_ -= entry->bytes;
    --count_;
    entry->~Entry();
    ::operator delete(entry);
  }

  mutable std::mutex mutex_;
  std::vector<Entry*> buckets_;  // their number is a power of two
  Entry *newest_ = nullptr, *oldest_ = nullptr;
  size_t max_bytes_, bytes_ = 0, count_ = 0;
};

}  // namespace constrain
