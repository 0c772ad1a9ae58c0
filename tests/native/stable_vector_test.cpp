// Tests of a table that grows while it is read.
#include "engine/base/stable_vector.h"

#include <thread>

#include "check.h"

namespace constrain {

TEST(elements_keep_their_places) {
  StableVector<size_t> table;
  std::vector<size_t*> places;
  for (size_t i = 0; i < 5000; ++i) {
    size_t& element = table.grow();
    CHECK(element == 0 && table.size() == i + 1);
    element = i;
    places.push_back(&element);
  }
  for (size_t i = 0; i < places.size(); ++i) CHECK(places[i] == &table[i] && table[i] == i);
}

TEST(readers_see_what_was_appended_before) {
  StableVector<size_t> table;
  std::thread writer([&] {
    for (size_t i = 0; i < 20'000; ++i) table.grow();
  });
  for (size_t seen = 0; seen < 20'000; seen = table.size()) {
    if (seen > 0) CHECK(table[seen - 1] == 0);
  }
  writer.join();
}

}  // namespace constrain
