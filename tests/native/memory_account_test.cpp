// Tests of memory accounting: growth counts for the account of the thread that made the object.
#include "engine/base/memory_account.h"

#include <thread>

#include "check.h"
#include "engine/automata/automaton.h"
#include "engine/base/interner.h"

namespace constrain {

TEST(objects_count_for_the_account_they_were_made_under) {
  const auto outer = std::make_shared<MemoryAccount>(), inner = std::make_shared<MemoryAccount>();
  {
    const MemoryAccount::Scope scope(outer);
    MemoryShare first;
    {
      const MemoryAccount::Scope nested(inner);
      MemoryShare second;
      first.add(5), second.add(7);
      CHECK(outer->bytes() == 5 && inner->bytes() == 7);
      const MemoryShare copy(second);
      CHECK(inner->bytes() == 14);
    }
    CHECK(inner->bytes() == 0);
    MemoryShare third;
    third.add(1);
    CHECK(outer->bytes() == 6);
  }
  CHECK(outer->bytes() == 0);
}

TEST(nobody_counts_outside_an_account) {
  MemoryShare share;
  share.add(100);
  const auto account = std::make_shared<MemoryAccount>();
  const MemoryAccount::Scope scope(account);
  std::thread([] {
    MemoryShare other;
    other.add(100);
  }).join();
  CHECK(account->bytes() == 0);
}

TEST(automata_grow_in_use) {
  const auto account = std::make_shared<MemoryAccount>();
  AutomatonPtr words;
  {
    const MemoryAccount::Scope scope(account);
    words = complement(literal_set({"abc", "abd"}));
  }
  const size_t before = account->bytes();
  CHECK(matches(*words, "xyz"));
  CHECK(account->bytes() > before);
  words.reset();
  CHECK(account->bytes() == 0);
}

TEST(interned_keys_count) {
  const auto account = std::make_shared<MemoryAccount>();
  const MemoryAccount::Scope scope(account);
  SequenceInterner interner;
  const std::vector<uint32_t> key(100, 7);
  interner.intern(key);
  const size_t one = account->bytes();
  CHECK(one >= 400);
  interner.intern(key);
  CHECK(account->bytes() == one);
}

}  // namespace constrain
