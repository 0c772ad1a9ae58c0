// How much memory a grammar takes, counted where it grows: its automata are spread over many objects and grow in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace constrain {

/// The bytes of a group of objects. Thread-safe.
class MemoryAccount {
 public:
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  /// The account of the objects that this thread makes now; nullptr where nobody counts.
  static const std::shared_ptr<MemoryAccount>& current() { return current_; }

  /// Makes an account the current one of this thread for as long as it lives.
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
  std::atomic<size_t> bytes_{0};
};

/// What one object takes, for the account that was current when it was made. Given back with the object.
class MemoryShare {
 public:
  MemoryShare() : account_(MemoryAccount::current()) {}
  ~MemoryShare() {
    if (account_) account_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  }
  MemoryShare(const MemoryShare& other) : account_(other.account_) { add(other.bytes_); }
  MemoryShare& operator=(const MemoryShare&) = delete;

  void add(size_t bytes) {
    bytes_ += bytes;
    if (account_) account_->bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<MemoryAccount> account_;
  size_t bytes_ = 0;
};

}  // namespace constrain
