// Items of an array with `uniqueItems`.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/registers.h"
#include "engine/json/item_plan.h"
#include "engine/json/item_text.h"
#include "engine/json/text_set.h"
#include "engine/json/value_search.h"

namespace constrain::json {

/// Parses the items of an array whose items must differ, and refuses bytes that only lead to values of earlier items.
///
/// The items are not called as rules: the array embeds the item's configuration in its register, together with its
/// text, so that every byte can be judged by the values that are still possible. Items are compared by value, in any
/// spelling.
class DistinctItems {
 public:
  DistinctItems(ArraySpec& spec, PlainStyle style) : spec_(spec), style_(style) {}

  void prepare(const ParseTable& grammar, const Lengths& lengths);

  /// Counts the values of items if there may be too few, and restricts the specification accordingly. True if it did.
  /// Throws SchemaError and ResourceLimit.
  bool refine();

  // ---- Queries of guards. `items` is a register, 0 while there are none. Thread-safe.

  /// Starts an item, a value of `rule`, with its first byte.
  bool begin(Reg& items, RuleId rule, uint8_t byte, Registers& registers) const;

  /// Advances the item by a byte.
  bool step(Reg& items, uint8_t byte, Registers& registers) const;

  /// True if the item is complete and differs from those before it.
  bool may_end(Reg items, Registers& registers) const;

  /// Ends the item.
  Reg end(Reg items, Registers& registers) const;

  /// True if an item may follow the one under way. Refused, as indescribable, where the text of that one is forgotten.
  bool may_go_on(Reg items, Registers& registers) const;

  /// True if the next item may be a value of `rule`.
  bool another(Reg items, RuleId rule, Registers& registers) const;

  /// See MaskHints::wildcard_region; for the item under way.
  WildcardRegion wildcard_region(Reg items) const;

  /// Takes the last item out, if it makes no difference to the array any more how it ends, because only completions
  /// matter; null if it does.
  const Configuration* release(Reg& items, Registers& registers) const;

  /// Forgets everything but how the last item may end, if the array depends on nothing else; false if it does.
  bool forget(Reg& items, Registers& registers) const;

  /// See CompletionHints::max_growth; for the last item.
  uint64_t max_growth(Reg items) const;

  /// True if the item under way is a complete value.
  bool is_over(Reg items) const { return unpack(items).item->accepting; }

  /// See CompletionHints::likely_bytes; for the item under way.
  ByteSet likely_bytes(Reg items) const;

  /// See CompletionHints::known_bytes; for the item under way.
  ByteSet known_bytes(Reg items) const;

  /// See CompletionHints::embedded: the item under way, until an object in it may have reached its limit of members.
  std::optional<const Configuration*> embedded(Reg items) const;

  /// See MaskHints::describe; false if guards have to look at other items.
  bool describe(Reg items, std::vector<uint64_t>& out) const;

  // ---- Lengths. Called under the grammar's lock.

  /// True if all items are values of one rule.
  bool alike() const { return spec_.prefix.empty() && spec_.tallies.empty(); }

  /// Bytes of the item under way, if any, and of `count` further items. Requires `alike()`.
  uint64_t length_with(Reg items, uint64_t count, const Lengths& lengths) const;

  /// Lengths of values such that each of `count` further items has one of at most that length, which no other item has.
  Lengths lengths_of_others(Reg items, uint64_t count, const Lengths& lengths) const;

  /// True if the required items can all differ.
  bool possible() const { return possible_; }

 private:
  /// Comparison of the item under way with its rivals, the values that it must not have.
  enum class Rivals : uint64_t {
    all,       ///< it may become any of them
    some,      ///< it may become those in the list
    none,      ///< it differs from all of them
    unwatched  ///< it is compared only at its end
  };

  /// The register, unpacked.
  struct Items {
    uint64_t count = 0;  ///< complete items
    Reg used = 0;        ///< values of the complete items: a TextSet
    // The item under way:
    Reg taken = 0;  ///< its rivals, values that earlier items have or later ones need: a TextSet
    Reg text = 0;   ///< its text as a list: (rest, byte, length)
    const Configuration* item = nullptr;
    uint64_t base = 0;  ///< depth of the frames below it
    Rivals rivals = Rivals::none;
    Reg rival_list = 0;  ///< list of rivals: (rest, length, value)
  };

  /// Values of a rule found so far.
  struct Values {
    std::vector<ValueSearch::Found> found;
    std::unique_ptr<ValueSearch> search;
    bool all = false;
    bool searching = false;
  };

  /// Values of an unfinished item found so far, which any array may go on with.
  struct Ends {
    std::string text;
    std::unique_ptr<ValueSearch> search;
    std::vector<ValueSearch::Found> found = {};
  };

  /// A shortest end of an item: `text` is complete, and was searched from its first `begin` bytes on.
  struct End {
    uint64_t taken;  ///< hash of the rivals
    size_t begin;
    std::string text, value;
  };

  /// A required place of the array with fewer values than there are such places.
  struct Scarce {
    uint64_t index;
    std::vector<std::string> values;
  };

  static Items unpack(Reg reg);
  static Reg pack(const Items& items, Registers& registers);
  static std::string text_of(const Items& items);
  static uint64_t text_length(const Items& items) {
    return items.text && items.text != kForgotten ? Registers::words(items.text)[2] : 0;
  }

  /// Stands for the text of an item, and for all values before it, where none of them makes a difference.
  static constexpr Reg kForgotten = 1;
  bool is_scalar(const Items& items) const;
  static bool differs(const Items& items, const Registers& registers);
  static void forget(Items& items);

  bool follow(Items& items, std::span<const StackTop> tops, uint8_t byte, Registers& registers) const;
  bool is_viable(Items& items, Registers& registers) const;
  void narrow(Items& items, Registers& registers) const;
  bool has_variety(const Configuration* item, uint64_t beyond) const;
  bool describe(const Configuration& item, uint64_t base, std::vector<uint64_t>& out) const;
  static bool ends_before_rivals(const Items& items, uint64_t bytes);
  /// Where items are alike, and lengths count all bytes, every part of a shortest end is the shortest end from there
  /// on.
  bool ends_are_shared() const { return alike() && !style_.spaced; }
  std::optional<ValueSearch::Found> shortest_end(const Items& items) const;
  std::optional<ValueSearch::Found> known_end(std::string_view text, uint64_t taken) const;
  void keep_end(End end) const;
  Ends begin_ends(const Items& items, const std::string& text, bool shared) const;
  void keep_ends(Ends ends) const;

  /// Returns the rivals of the next item, or an upper bound on their number.
  TextSet taken(const Items& items, Registers& registers) const;
  uint64_t taken_count(const Items& items) const { return items.count + scarce_values_; }
  /// True if the scarce places from `from` on can be filled without the used values and one more.
  bool can_differ(uint64_t from, TextSet used, const std::string& taken) const;
  uint64_t rival_count(const Items& items) const;
  static std::vector<Reg> rivals(const Items& items);

  /// Returns the values of a choice if they are fewer than `count`.
  const Values* fewer(const ArraySpec::Choice& choice, uint64_t count) const;

  /// Limits the number of items by their values. Enough if all items are alike, or of kinds without common values.
  void limit_uses(uint64_t needed);
  void find_scarce_places();
  void refuse_scarce_kinds(uint64_t needed) const;

  /// Finds at least `count` values of a rule, if there are that many. Null while they are being searched.
  const Values* values_of(RuleId rule, uint64_t count) const;

  ArraySpec& spec_;
  PlainStyle style_;
  const ParseTable* grammar_ = nullptr;
  const Lengths* lengths_ = nullptr;
  std::vector<Scarce> scarce_;
  uint64_t scarce_values_ = 0;
  bool possible_ = true;
  mutable std::map<RuleId, Values> values_;  // guarded by the grammar's lock
  mutable std::mutex ends_mutex_;
  mutable std::deque<End> ends_;    // the last that were found
  mutable std::deque<Ends> begun_;  // the last searches, except those under way
};

}  // namespace constrain::json
