// Tests of a thread pool whose callers help.
#include "engine/base/workers.h"

#include "check.h"

namespace constrain {

TEST(workers_do_every_piece_once) {
  for (const size_t threads : {size_t{0}, size_t{1}, size_t{4}}) {
    Workers workers(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> first(37), second(200);
      const auto one = workers.start(first.size(), [&](size_t i) { ++first[i]; });
      const auto other = workers.start(second.size(), [&](size_t i) { ++second[i]; });
      other->finish();
      one->finish();
      CHECK(first == std::vector<int>(37, 1));
      CHECK(second == std::vector<int>(200, 1));
    }
  }
}

TEST(a_piece_can_be_waited_for_alone) {
  for (const size_t threads : {size_t{0}, size_t{3}}) {
    Workers workers(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> done(40);
      const auto batch = workers.start(done.size(), [&](size_t i) { done[i] = 1; });
      batch->wait_for(17);
      CHECK(batch->done(17) && done[17] == 1);
      batch->finish();
      CHECK(done == std::vector<int>(40, 1));
    }
  }
}

TEST(work_can_be_waited_for_when_the_workers_are_gone) {
  std::vector<int> done(100);
  std::shared_ptr<Workers::Batch> batch;
  {
    Workers workers(2);
    batch = workers.start(done.size(), [&](size_t i) { ++done[i]; });
    workers.start(0, [](size_t) {})->finish();
  }
  batch->finish();
  CHECK(done == std::vector<int>(100, 1));
}

}  // namespace constrain
