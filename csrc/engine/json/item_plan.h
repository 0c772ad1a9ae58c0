// Completions of arrays whose items are counted by kind.
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

/// The items of an array: item i is one of `prefix[i]`, or of `rest` beyond the prefix.
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
  std::optional<Place> distinct;  ///< place of the keyword that requires items to differ

  static constexpr size_t kMaxTallies = 6;

  const std::vector<Choice>& choices(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

/// Computes the fewest bytes of further items, given a number of items and tallies. Where no maximum may come into
/// play, it is a dynamic programme over what the tallies lack; else also over the number of further items, exact up to
/// where their order stops to matter. Thread-safe.
class ItemPlan {
 public:
  /// `comma` is the length of the separator of each item. Throws ResourceLimit if the tallies require more items than
  /// the programme covers.
  ItemPlan(const ArraySpec& spec, const Lengths& lengths, uint64_t comma);

  /// Fewest bytes of at least `more` further items, each with a comma, that complete an array of `count` items;
  /// infinite if there are none.
  uint64_t length(uint64_t count, const std::vector<uint64_t>& tallies, uint64_t more) const;

  /// True if there is such a completion.
  bool possible(uint64_t count, const std::vector<uint64_t>& tallies, uint64_t more) const {
    return length(count, tallies, more) != kInfinite;
  }

  /// Adds an item to the tallies; false if one would exceed its maximum.
  bool add(uint32_t choice, std::vector<uint64_t>& tallies) const;

 private:
  static constexpr uint64_t kMaxItems = 4096;

  using Cache = std::map<std::vector<uint64_t>, uint64_t>;  // by index, number of items and tallies

  bool met(const std::vector<uint64_t>& tallies) const;
  uint64_t at_least(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t items) const;
  uint64_t bounded(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t low, uint64_t high) const;
  uint64_t exactly(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t items) const;

  const ArraySpec& spec_;
  uint64_t comma_;
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>>
      choices_;                   // by index: tallies and length, inhabited ones only
  bool has_maximum_ = false;      // of a tally
  uint64_t horizon_ = 1;          // further items beyond which only neutral ones are left
  uint64_t neutral_ = kInfinite;  // shortest item that counts towards no tally with a maximum
  mutable std::mutex mutex_;
  mutable Cache at_least_, exactly_;
  mutable MemoryShare memory_;  // memory of the cache
};

}  // namespace constrain::json
