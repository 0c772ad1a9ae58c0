// Tests of rows stored as ranges of bytes.
#include "engine/automata/state_row.h"

#include <algorithm>
#include <memory>
#include <random>

#include "check.h"
#include "engine/automata/automaton.h"

namespace constrain {

namespace {

/// A random row with a few targets, written in any order as ranges of about `length` bytes.
Transitions random_transitions(std::mt19937& random, unsigned length) {
  Transitions made;
  for (unsigned i = 0; i <= 512 / length; ++i) {
    const auto first = static_cast<int>(random() % 256), more = static_cast<int>(random() % (2 * length));
    made.set(first, std::min(first + more, 255), random() % 4 == 0 ? kDead : random() % 5);
  }
  return made;
}

}  // namespace

TEST(rows_lead_where_they_were_written_to) {
  std::mt19937 random(1);
  Arena arena;
  MemoryShare memory;
  for (const unsigned length : {1, 2, 10, 100, 1000}) {
    const Transitions written = random_transitions(random, length);
    const StateRow& row = *StateRow::make(written, arena, memory);
    for (size_t byte = 0; byte < 256; ++byte) {
      CHECK(row[static_cast<uint8_t>(byte)] == written[byte]);
      CHECK(row.bytes().has(static_cast<uint8_t>(byte)) == (written[byte] != kDead));
    }
    size_t next = 0;
    for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
      CHECK(first == next);
      CHECK(first == 0 || written[first - 1] != to);
      for (; next <= last; ++next) CHECK(written[next] == to);
    });
    CHECK(next == 256);
  }
}

TEST(rows_are_read_side_by_side) {
  std::mt19937 random(2);
  Arena arena;
  MemoryShare memory;
  const Transitions a = random_transitions(random, 3), b = random_transitions(random, 50);
  const StateRow* rows[] = {StateRow::make(a, arena, memory), nullptr, StateRow::make(b, arena, memory)};
  size_t next = 0;
  for_each_common_range(rows, [&](uint8_t first, uint8_t last, std::span<const State> targets) {
    CHECK(first == next);
    for (; next <= last; ++next) {
      CHECK(targets[0] == a[next]);
      CHECK(targets[1] == kDead);
      CHECK(targets[2] == b[next]);
    }
  });
  CHECK(next == 256);
}

TEST(rows_take_memory_by_their_ranges) {
  const auto account = std::make_shared<MemoryAccount>();
  const MemoryAccount::Scope scope(account);
  const AutomatonPtr words = literal_set({"a longer word, of which each letter has a state of its own"});
  const size_t before = account->bytes();
  CHECK(matches(*words, "a longer word, of which each letter has a state of its own"));
  CHECK(account->bytes() > before);
  CHECK(account->bytes() - before < 59 * 32);
}

}  // namespace constrain
