// The items of an array that has no two equal ones.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/grammar/registers.h"
#include "engine/json/item_plan.h"
#include "engine/json/item_text.h"
#include "engine/json/text_set.h"
#include "engine/json/value_search.h"

namespace constrain::json {

/// Follows the items of such an array, and refuses what leads to no item but those there are already.
///
/// An item is not called as a rule of its own: the array follows the item's configuration in its register, together
/// with the text, and may so judge every byte by the values that are still possible after it. Items are compared by
/// value, and may be spelled in any way.
class DistinctItems {
 public:
  DistinctItems(ArraySpec& spec, PlainStyle style) : spec_(spec), style_(style) {}

  void prepare(const ParseTable& grammar, const Lengths& lengths);

  /// Counts the values of items where it matters whether there are enough of them, and tells the specification. True
  /// where that was so. Throws SchemaError and ResourceLimit.
  bool refine();

  // ---- What guards ask. `items` is a register, 0 while there are none. Thread-safe.

  /// Starts an item, a value of `rule`, with its first byte.
  bool begin(Reg& items, RuleId rule, uint8_t byte, Registers& registers) const;

  /// Goes on with the item.
  bool step(Reg& items, uint8_t byte, Registers& registers) const;

  /// The item is complete, and differs from those before it.
  bool may_end(Reg items, Registers& registers) const;

  /// Ends the item.
  Reg end(Reg items, Registers& registers) const;

  /// A value of `rule` can be the next item.
  bool another(Reg items, RuleId rule, Registers& registers) const;

  /// MaskHints::wildcard_region within an item.
  WildcardRegion wildcard_region(Reg items) const;

  /// CompletionHints::max_growth within an item, where it differs from all others.
  uint64_t max_growth(Reg items) const;

  /// CompletionHints::embedded: the item under way, while it has not so many members that no more may come.
  std::optional<const Configuration*> embedded(Reg items) const;

  /// MaskHints::describe: the item under way, as long as no guard has to look at the others.
  bool describe(Reg items, std::vector<uint64_t>& out) const;

  // ---- Lengths. Called under the grammar's lock.

  /// All items are values of one rule.
  bool alike() const { return spec_.prefix.empty() && spec_.tallies.empty(); }

  /// Bytes until the item under way, if there is one, can end, and of `count` further ones, where all items are alike.
  uint64_t length_with(Reg items, uint64_t count, const Lengths& lengths) const;

  /// Lengths of values such that each of `count` further items has one that is no longer, and no other item has it.
  Lengths lengths_of_others(Reg items, uint64_t count, const Lengths& lengths) const;

  /// The items that must be there can all differ.
  bool possible() const { return possible_; }

 private:
  /// What is known of how the item under way compares with the values that it must not have.
  enum class Rivals : uint64_t {
    all,       ///< it may still become any of them
    some,      ///< ... those in the list
    none,      ///< it differs from all of them
    unwatched  ///< it is compared when it ends
  };

  /// The register, unpacked.
  struct Items {
    uint64_t count = 0;  ///< of complete items
    Reg used = 0;        ///< their values: a TextSet
    // Of the item under way:
    Reg taken = 0;  ///< values that it must not have, as earlier items have them or later ones need them: a TextSet
    Reg text = 0;   ///< as a list: (rest, byte, length)
    const Configuration* item = nullptr;
    uint64_t base = 0;  ///< frames below it
    Rivals rivals = Rivals::none;
    Reg rival_list = 0;  ///< (rest, length of the list, value)
  };

  /// The values of a rule, as far as they were looked for.
  struct Values {
    std::vector<ValueSearch::Found> found;
    std::unique_ptr<ValueSearch> search;
    bool all = false;
    bool searching = false;
  };

  /// A place in the array that must be filled, and all values that it can have, which are fewer than such places.
  struct Scarce {
    uint64_t index;
    std::vector<std::string> values;
  };

  static Items unpack(Reg reg);
  static Reg pack(const Items& items, Registers& registers);
  static std::string text_of(const Items& items);
  static uint64_t text_length(const Items& items) { return items.text ? Registers::words(items.text)[2] : 0; }

  bool follow(Items& items, std::span<const Head> heads, uint8_t byte, Registers& registers) const;
  bool is_viable(Items& items, Registers& registers) const;
  void narrow(Items& items, Registers& registers) const;
  bool has_variety(const Configuration* item, uint64_t beyond) const;
  bool describe(const Configuration& item, uint64_t base, std::vector<uint64_t>& out) const;
  std::optional<ValueSearch::Found> shortest_end(const Items& items) const;

  /// The values that the next item must not have, and how many they are at most.
  TextSet taken(const Items& items, Registers& registers) const;
  uint64_t taken_count(const Items& items) const { return items.count + scarce_values_; }
  /// Whether the scarce places from an index on can be filled without what is used and one more value.
  bool can_differ(uint64_t from, TextSet used, const std::string& taken) const;
  uint64_t rival_count(const Items& items) const;
  static std::vector<Reg> rivals(const Items& items);

  /// The values of a choice, where they are fewer than `count`.
  const Values* fewer(const ArraySpec::Choice& choice, uint64_t count) const;

  /// Where all items are alike, or of kinds that share no value, it is enough to count them.
  void limit_uses(uint64_t needed);
  void find_scarce_places();
  void refuse_scarce_kinds(uint64_t needed) const;

  /// The values of a rule, at least `count` where there are so many. Nothing while they are being looked for.
  const Values* values_of(RuleId rule, uint64_t count) const;

  ArraySpec& spec_;
  PlainStyle style_;
  const ParseTable* grammar_ = nullptr;
  const Lengths* lengths_ = nullptr;
  std::vector<Scarce> scarce_;
  uint64_t scarce_values_ = 0;
  bool possible_ = true;
  mutable std::map<RuleId, Values> values_;  // under the grammar's lock
};

}  // namespace constrain::json
