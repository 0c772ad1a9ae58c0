// Bump allocation for values that are freed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace constrain {

/// Allocates trivially destructible values; all memory is freed, or reused after `reset`, at once.
class Arena {
 public:
  Arena() = default;
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept {
    std::swap(first_, other.first_), std::swap(current_, other.current_);
    std::swap(at_, other.at_), std::swap(left_, other.left_);
    return *this;
  }
  ~Arena() {
    while (first_) ::operator delete(std::exchange(first_, first_->next));
  }

  /// Returns memory for `count` values; nullptr for none.
  template <class T>
  T* allocate(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    const size_t bytes = (count * sizeof(T) + 7) & ~size_t{7};
    if (bytes == 0) return nullptr;
    if (bytes > left_) grow(bytes);
    left_ -= bytes;
    return static_cast<T*>(static_cast<void*>(std::exchange(at_, at_ + bytes)));
  }

  void reset() {
    if (first_) enter(first_);
  }

  size_t bytes() const {
    size_t sum = 0;
    for (const Block* block = first_; block; block = block->next) sum += block->size;
    return sum;
  }

 private:
  /// The header of a block, before its memory.
  struct Block {
    size_t size;
    Block* next;
  };

  // Blocks that malloc reuses without searching for them; few arenas need more.
  static constexpr size_t kFirst = 1000 - sizeof(Block), kFirstBlocks = 4, kLargest = 1 << 20;

  void enter(Block* block) {
    current_ = block, left_ = block->size;
    at_ = reinterpret_cast<std::byte*>(block + 1);
  }

  void grow(size_t bytes) {
    while (current_ && current_->next) {
      enter(current_->next);
      if (bytes <= left_) return;
    }
    const size_t held = this->bytes();
    const size_t size = std::max(bytes, held < kFirstBlocks * kFirst ? kFirst : std::min(held, kLargest));
    Block* made = new (::operator new(sizeof(Block) + size)) Block{size, nullptr};
    (current_ ? current_->next : first_) = made;
    enter(made);
  }

  Block *first_ = nullptr, *current_ = nullptr;
  std::byte* at_ = nullptr;  // in `current_`
  size_t left_ = 0;
};

}  // namespace constrain
