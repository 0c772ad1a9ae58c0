// A growing table with lock-free reads.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

#include "engine/base/memory_account.h"

namespace constrain {

/// A vector whose elements never move: they lie in chunks, each twice as long as the one before. One thread at a time
/// may append, under the caller's lock; any thread may read an element whose index it received after the append.
template <class T>
class StableVector {
  static constexpr size_t kFirst = 8, kChunks = 19;

 public:
  static constexpr size_t kCapacity = kFirst * ((size_t{1} << kChunks) - 1);

  StableVector() = default;
  StableVector(const StableVector&) = delete;
  StableVector& operator=(const StableVector&) = delete;
  ~StableVector() { clear(); }

  size_t size() const { return size_.load(std::memory_order_acquire); }

  T& operator[](size_t index) const {
    const size_t chunk = chunk_of(index);
    return chunks_[chunk].load(std::memory_order_acquire)[index + kFirst - length(chunk)];
  }

  /// Removes all elements, which no thread may be using.
  void clear() {
    for (auto& chunk : chunks_) delete[] chunk.exchange(nullptr, std::memory_order_relaxed);
    size_.store(0, std::memory_order_relaxed);
  }

  /// Appends a default-constructed element; the caller checks kCapacity.
  T& grow() {
    const size_t index = size_.load(std::memory_order_relaxed), chunk = chunk_of(index);
    if (index + kFirst == length(chunk)) {
      memory_.add(length(chunk) * sizeof(T));
      chunks_[chunk].store(new T[length(chunk)](), std::memory_order_release);
    }
    size_.store(index + 1, std::memory_order_release);
    return (*this)[index];
  }

 private:
  static size_t length(size_t chunk) { return kFirst << chunk; }
  static size_t chunk_of(size_t index) {
    return static_cast<size_t>(std::bit_width(index + kFirst) - std::bit_width(kFirst));
  }

  std::array<std::atomic<T*>, kChunks> chunks_{};
  std::atomic<size_t> size_{0};
  MemoryShare memory_;
};

}  // namespace constrain
