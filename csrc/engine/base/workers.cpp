#include "engine/base/workers.h"

#include <algorithm>

namespace constrain {

/// Runs a piece that has not begun; false if there is none.
bool Workers::Batch::do_next() {
  const size_t piece = next_++;
  if (piece >= count_) return false;
  work_(piece);
  done_[piece] = true;
  --left_;
  left_.notify_all();
  return true;
}

void Workers::Batch::wait_for(size_t piece) {
  while (true) {
    const size_t left = left_;
    if (done_[piece]) return;
    if (!do_next()) left_.wait(left);
  }
}

void Workers::Batch::finish() {
  while (do_next()) {
  }
  for (size_t left = left_; left > 0; left = left_) left_.wait(left);
}

Workers::Workers(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<Workers::Batch> Workers::start(size_t count, std::function<void(size_t)> work) {
  auto batch = std::make_shared<Batch>(count, std::move(work));
  {
    const std::lock_guard lock(mutex_);
    batches_.push_back(batch);
  }
  // The starter may do pieces itself: with few of them, a wake-up of all threads would cost more than the work.
  for (size_t i = 0; i < std::min(count, threads_.size()); ++i) wake_.notify_one();
  return batch;
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || !batches_.empty(); });
    if (stopped_) return;
    const std::shared_ptr<Batch> batch = batches_.front();
    if (batch->all_begun()) {
      batches_.pop_front();
      continue;
    }
    lock.unlock();
    while (batch->do_next()) {
    }
    lock.lock();
  }
}

}  // namespace constrain
