// How much memory a grammar takes, counted and bounded where it grows: its automata are spread over many objects and
// grow in use.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

namespace constrain {

/// The bytes of a group of objects. Thread-safe.
class MemoryAccount {
 public:
  /// Growing beyond `limit` throws ResourceLimit("max_memory").
  explicit MemoryAccount(size_t limit = std::numeric_limits<size_t>::max()) : limit_(limit) {}

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

  void charge(size_t bytes) {
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > limit_) refuse(bytes);
  }
  [[noreturn]] void refuse(size_t bytes);

  size_t limit_;
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

  /// To be called before the object grows: what throws has not been added.
  void add(size_t bytes) {
    if (account_) account_->charge(bytes);
    bytes_ += bytes;
  }

 private:
  std::shared_ptr<MemoryAccount> account_;
  size_t bytes_ = 0;
};

}  // namespace constrain
