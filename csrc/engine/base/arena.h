// Bump allocation for values that are freed together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

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
    if (bytes > left_) grow(bytes);
    left_ -= bytes;
    return static_cast<T*>(static_cast<void*>(std::exchange(at_, at_ + bytes)));
  }

  void reset() {
    if (first_) enter(first_.get());
  }

  size_t bytes() const {
    size_t sum = 0;
    for (const Block* block = first_.get(); block; block = block->next) sum += block->size;
    return sum;
  }

 private:
  /// The header of a block, before its memory.
  struct Block {
    size_t size;
    Block* next;
  };
  struct Free {
    void operator()(Block* block) const {
      while (block) ::operator delete(std::exchange(block, block->next));
    }
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
    if (current_) {
      current_->next = made;
    } else {
      first_.reset(made);
    }
    enter(made);
  }

  std::unique_ptr<Block, Free> first_;
  Block* current_ = nullptr;
  std::byte* at_ = nullptr;  // in `current_`
  size_t left_ = 0;
};

}  // namespace constrain
