// JSON arrays.
#pragma once

#include <memory>
#include <optional>

#include "engine/grammar/rule.h"
#include "engine/json/distinct_items.h"
#include "engine/json/item_plan.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

/// An array. The register counts the items if bounds need that. If items are counted by kind, or must differ, it also
/// holds the tallies and the state of the items.
class ArrayRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  ArrayRule(ArraySpec spec, Whitespace whitespace, bool keys_in_order);

  Local start() override { return encode(Phase::start); }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void prepare(const ParseTable& grammar, const Lengths& lengths) override;
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return state == encode(Phase::end); }
  bool refine(const ParseTable& grammar, const Lengths& lengths) override;
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  bool uses_depth() const override { return whitespace_.indents(); }
  WildcardRegion wildcard_region(Local state, Reg reg) override;
  bool is_remaining_exact() const override { return !distinct_ || distinct_->alike(); }
  /// Items that must differ are measured in one spelling, and places of several kinds each at their longest value.
  bool is_remaining_least() const override { return !distinct_; }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  ByteSet likely_bytes(Local state, Reg reg) override;
  ByteSet known_bytes(Local state, Reg reg) override;
  uint64_t max_growth(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t max_remaining(RuleBounds& bounds) override;
  Outlay max_outlay(Local state, Reg reg, uint64_t now, RuleBounds& bounds) override;
  std::optional<const Configuration*> embedded(Local, Reg reg) const override {
    return distinct_ ? distinct_->embedded(unpack(reg).items) : nullptr;
  }
  std::optional<Call> as_call(Local state, Reg reg, Registers& registers) const override;
  Reg ending(Local state, Reg reg, Registers& registers) const override;
  uint64_t max_to_differ(RuleBounds& bounds) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable& grammar) override;
  void add_callees(std::vector<RuleId>& out) const override;

 private:
  /// Items that must differ are parsed `inside` the array; others are called.
  enum class Phase : uint32_t { start, open, item, inside, after, before_comma, closing, end };
  /// Flags of guards, which may be combined. The bits above them hold the tallies of an item, and then the spaces of a
  /// line.
  static constexpr Guard kItem = 1, kComma = 2, kClose = 4, kSpace = 8, kIndented = 16, kInner = 32, kInside = 64;
  static constexpr int kTalliesShift = 7, kSpacesShift = kTalliesShift + ArraySpec::kMaxTallies;

  /// Bytes of an array besides its items and their commas: brackets, one more comma, the rest of a line break.
  static constexpr uint64_t kBrackets = 5;

  /// Packs a state: the phase, the white space run, and the number of items so far, which stops at the end of the
  /// prefix.
  static Local encode(Phase phase, uint32_t run = 0, uint32_t index = 0) {
    return Local{index} << 32 | run << 4 | static_cast<uint32_t>(phase);
  }
  /// Bytes counted for a line break of an indented array. The spaces are forced, and left out of lengths.
  uint64_t line_length() const { return whitespace_.indents() ? 1 : 0; }
  uint64_t begun_line(Local state) const;
  Guard space(uint32_t run, Guard level) const;
  Guard indented(uint32_t run, Guard level) const;
  void call_item(uint32_t index, Guard guard, Expansion& out) const;
  bool tallied() const { return distinct_ || !spec_.tallies.empty(); }
  bool may_be_empty() const;

  /// The register of a tallied array, unpacked.
  struct Tallied {
    uint64_t count = 0;
    Reg items = 0;  // register of `distinct_`
    std::vector<uint64_t> tallies;
  };
  Tallied unpack(Reg reg) const;
  Reg pack(const Tallied& at, Registers& registers) const;
  bool apply_tallied(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const;
  std::optional<Tallied> with_item(Tallied at, uint32_t tallies) const;
  bool begin_item(Tallied& at, uint64_t index, uint32_t tallies, uint8_t byte, Registers& registers) const;
  bool may_have_another(const Tallied& at, Registers& registers) const;
  bool may_close(const Tallied& at) const;
  /// True if the items, which must differ, are alike, and none is needed after the one under way.
  bool is_last(const Tallied& at) const { return distinct_->alike() && max_needed(at, 0) == 0; }

  /// Upper bound on the items of a shortest completion with at least `more` items.
  uint64_t max_needed(const Tallied& at, uint64_t more) const;
  /// Bytes of the item under way, if any, and of at least `more` further items, each with a comma.
  uint64_t further_items(const Tallied& at, uint64_t more, const Lengths& lengths) const;
  uint64_t remaining_after_run(Local state, Reg reg, const Lengths& lengths) const;
  uint64_t remaining_tallied(Local state, Reg reg, const Lengths& lengths) const;

  /// Largest number of items; an item without values ends the array before it.
  uint64_t max_items(const Lengths& lengths) const;
  bool counts(uint64_t max) const { return spec_.min > 1 || max != kInfinite; }
  uint64_t max_distinct(RuleBounds& bounds) const;
  uint64_t longest_item(const Lengths& lengths) const;
  uint64_t items_length(uint64_t from, uint64_t to, const Lengths& lengths) const;

  ArraySpec spec_;
  WhitespaceRun whitespace_;
  uint64_t max_ = kInfinite;  // `spec_.max`, or fewer if items have no values
  std::unique_ptr<ItemPlan> plan_;
  const Lengths* planned_for_ = nullptr;  // the lengths of `plan_`
  std::unique_ptr<DistinctItems> distinct_;
};

}  // namespace constrain::json
