// How an array whose items are counted by kind can still be completed.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/base/errors.h"
#include "engine/base/memory_account.h"
#include "engine/grammar/rule.h"

namespace constrain::json {

/// Which items an array has: item i is one of `prefix[i]`, or of `rest` beyond the prefix.
struct ArraySpec {
  /// A value that an item may have, and the tallies (by bit) that it adds to.
  struct Choice {
    RuleId value;
    uint32_t tallies = 0;
  };
  /// Between `min` and `max` items add to a tally.
  struct Tally {
    uint64_t min = 0, max = kInfinite;
  };
  std::vector<std::vector<Choice>> prefix;
  std::vector<Choice> rest;
  std::vector<Tally> tallies;
  uint64_t min = 0, max = kInfinite;
  std::optional<Place> distinct;  ///< what demands that no two items have the same value

  static constexpr size_t kMaxTallies = 6;

  const std::vector<Choice>& choices(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

/// Works out, for a number of items and tallies, how many bytes the further items take at least: a dynamic programme
/// over the number of further items, exact up to where their order stops to matter. Thread-safe.
class ItemPlan {
 public:
  /// `comma` is the length of what comes with each item. Throws ResourceLimit where the tallies ask for more items than
  /// the programme can follow.
  ItemPlan(const ArraySpec& spec, const Lengths& lengths, uint64_t comma);

  /// Fewest bytes of at least `more` further items, each with a comma, that complete an array of `count` items;
  /// infinite where there are none.
  uint64_t length(uint64_t count, const std::vector<uint64_t>& tallies, uint64_t more) const;

  /// Whether there is such a completion at all.
  bool possible(uint64_t count, const std::vector<uint64_t>& tallies, uint64_t more) const {
    return length(count, tallies, more) != kInfinite;
  }

  /// Adds an item to the tallies; false where one would exceed its maximum.
  bool add(uint32_t choice, std::vector<uint64_t>& tallies) const;

 private:
  static constexpr uint64_t kMaxItems = 4096;

  uint64_t exactly(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t items) const;

  const ArraySpec& spec_;
  uint64_t comma_;
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>>
      choices_;                   // by index: tallies and length, inhabited ones only
  uint64_t horizon_ = 1;          // further items beyond which only neutral ones are left
  uint64_t neutral_ = kInfinite;  // length of the shortest item that no tally with a maximum minds
  mutable std::mutex mutex_;
  mutable std::map<std::vector<uint64_t>, uint64_t> known_;
  mutable MemoryShare memory_;  // of what is known
};

}  // namespace constrain::json
