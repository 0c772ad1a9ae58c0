// Bump allocation for values that are freed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace constrain {

/// Allocates trivially destructible values; all memory is freed, or reused after `reset`, at once.
class Arena {
 public:
  /// Returns memory for `count` values; nullptr for none.
  template <class T>
  T* allocate(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    const size_t bytes = (count * sizeof(T) + 7) & ~size_t{7};
    if (bytes == 0) return nullptr;
    if (bytes > size_ - used_) grow(bytes);
    void* result = blocks_[current_].get() + used_;
    used_ += bytes;
    return static_cast<T*>(result);
  }

  void reset() { current_ = 0, used_ = 0, size_ = sizes_.empty() ? 0 : sizes_[0]; }

  size_t bytes() const {
    size_t sum = 0;
    for (size_t size : sizes_) sum += size;
    return sum;
  }

 private:
  // Blocks that malloc reuses without searching for them; few arenas need more.
  static constexpr size_t kFirst = 1000, kFirstBlocks = 4;

  void grow(size_t bytes) {
    while (current_ + 1 < blocks_.size()) {
      ++current_, used_ = 0, size_ = sizes_[current_];
      if (bytes <= size_) return;
    }
    const bool first = sizes_.size() < kFirstBlocks;
    const size_t size = std::max<size_t>(bytes, first ? kFirst : std::min<size_t>(2 * sizes_.back(), 1 << 20));
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    sizes_.push_back(size);
    current_ = blocks_.size() - 1, used_ = 0, size_ = size;
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<size_t> sizes_;
  size_t current_ = 0, used_ = 0, size_ = 0;
};

}  // namespace constrain
