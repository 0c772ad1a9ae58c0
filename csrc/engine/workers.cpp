#include "engine/workers.h"

namespace constrain {

void Workers::Batch::work_off() {
  for (size_t i = next_++; i < count_; i = next_++) {
    work_(i);
    if (--left_ == 0) left_.notify_all();
  }
}

void Workers::Batch::finish() {
  work_off();
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
  wake_.notify_all();
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
    batch->work_off();
    lock.lock();
  }
}

}  // namespace constrain
