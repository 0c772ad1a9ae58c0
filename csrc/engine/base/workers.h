// A thread pool for work on many texts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace constrain {

/// A pool of threads. Thread-safe.
class Workers {
 public:
  /// Pieces of work that were started together.
  class Batch {
   public:
    Batch(size_t count, std::function<void(size_t)> work)
        : work_(std::move(work)), count_(count), done_(count), left_(count) {}

    bool done(size_t piece) const { return done_[piece]; }

    /// Runs pieces that have not begun until this one is done.
    void wait_for(size_t piece);

    /// Runs pieces that have not begun, and waits for the others.
    void finish();

   private:
    friend class Workers;

    bool all_begun() const { return next_ >= count_; }
    bool do_next();

    std::function<void(size_t)> work_;
    size_t count_;
    std::atomic<size_t> next_{0};
    std::vector<std::atomic<bool>> done_;
    std::atomic<size_t> left_;
  };

  explicit Workers(size_t threads);

  /// Abandons pieces that have not begun; their starter can still wait for them.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Calls `work(i)`, which must not throw, for every i below `count` on the pool's threads, and returns at once.
  std::shared_ptr<Batch> start(size_t count, std::function<void(size_t)> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Batch>> batches_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace constrain
