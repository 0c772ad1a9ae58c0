// Memory accounting. The automata of a grammar are many objects that grow in use; all are counted in one account, whose
// limit is checked wherever they grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

namespace constrain {

/// Counts the bytes of a group of objects. Thread-safe.
class MemoryAccount {
 public:
  /// Growing beyond `limit` throws ResourceLimit("max_memory").
  explicit MemoryAccount(size_t limit = std::numeric_limits<size_t>::max()) : limit_(limit) {}

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  /// Account of the objects that this thread creates now; nullptr if they are not counted.
  static const std::shared_ptr<MemoryAccount>& current() { return current_; }

  /// Makes an account the current one of this thread while it lives.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<MemoryAccount> account) : outer_(std::exchange(current_, std::move(account))) {}
    ~Scope() { current_ = std::move(outer_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<MemoryAccount> outer_;
  };

 private:
  friend class MemoryShare;
  static inline thread_local std::shared_ptr<MemoryAccount> current_;

  void charge(size_t bytes) {
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > limit_) refuse(bytes);
  }
  [[noreturn]] void refuse(size_t bytes);

  size_t limit_;
  std::atomic<size_t> bytes_{0};
};

/// The memory of one object in the account that was current at its creation; returned on destruction.
class MemoryShare {
 public:
  MemoryShare() : account_(MemoryAccount::current()) {}
  ~MemoryShare() {
    if (account_) account_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  }
  MemoryShare(const MemoryShare& other) : account_(other.account_) { add(other.bytes_); }
  MemoryShare& operator=(const MemoryShare&) = delete;

  /// Counts memory before the object grows; if it throws, nothing was counted.
  void add(size_t bytes) {
    if (account_) account_->charge(bytes);
    bytes_ += bytes;
  }

 private:
  std::shared_ptr<MemoryAccount> account_;
  size_t bytes_ = 0;
};

}  // namespace constrain
