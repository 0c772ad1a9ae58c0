// A growing table that is read without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace constrain {

/// Elements never move. One thread at a time may append (callers hold a lock); any thread may read an element whose
/// index it got after the append.
template <class T, size_t kChunk = 1024, size_t kChunks = 4096>
class StableVector {
 public:
  static constexpr size_t kCapacity = kChunk * kChunks;

  StableVector() = default;
  StableVector(const StableVector&) = delete;
  StableVector& operator=(const StableVector&) = delete;
  ~StableVector() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  size_t size() const { return size_.load(std::memory_order_acquire); }
  T& operator[](size_t index) const { return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk]; }

  /// Makes room for one more element, default-constructed; the caller checks kCapacity.
  T& grow() {
    const size_t index = size_.load(std::memory_order_relaxed);
    if (index % kChunk == 0) chunks_[index / kChunk].store(new T[kChunk](), std::memory_order_release);
    size_.store(index + 1, std::memory_order_release);
    return (*this)[index];
  }

 private:
  std::array<std::atomic<T*>, kChunks> chunks_{};
  std::atomic<size_t> size_{0};
};

}  // namespace constrain
