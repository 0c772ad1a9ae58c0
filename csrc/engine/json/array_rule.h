// JSON arrays.
#pragma once

#include "engine/json/item_plan.h"
#include "engine/json/whitespace.h"
#include "engine/rule.h"

namespace constrain::json {

/// An array. The register counts its items where the bounds need that; where items are also counted by kind it holds
/// the tallies as well.
class ArrayRule final : public Rule {
 public:
  ArrayRule(ArraySpec spec, Whitespace whitespace) : spec_(std::move(spec)), whitespace_(whitespace) {}

  Local start() override { return encode(Phase::start); }
  void prepare(const Lengths& lengths) override;
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool final(Local state, const Lengths&) override { return state == encode(Phase::end); }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  bool uses_depth() const override { return whitespace_.indents(); }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  std::vector<RuleId> callees() const override;

 private:
  enum class Phase : uint32_t { start, open, item, after, before_comma, closing, end };
  /// Tests, which may be combined. Above the flags stand the tallies of an item, and then the spaces of a line so far.
  static constexpr Guard kItem = 1, kComma = 2, kClose = 4, kSpace = 8, kIndented = 16, kInner = 32;
  static constexpr int kTalliesShift = 6, kSpacesShift = kTalliesShift + ArraySpec::kMaxTallies;

  /// A state: the phase, the white space run, and the number of items so far (which stops at the end of the prefix).
  static Local encode(Phase phase, uint32_t run = 0, uint32_t index = 0) {
    return Local{index} << 32 | run << 4 | static_cast<uint32_t>(phase);
  }
  Guard space(uint32_t run, Guard level) const;
  Guard indented(uint32_t run, Guard level) const;
  void call_item(uint32_t index, Guard guard, Expansion& out) const;
  bool tallied() const { return !spec_.tallies.empty(); }

  /// The register of a tallied array, unpacked.
  struct Tallied {
    uint64_t count = 0;
    std::vector<uint64_t> tallies;
  };
  Tallied unpack(Reg reg) const;
  bool apply_tallied(Guard guard, Reg& reg, Registers& registers) const;
  uint64_t remaining_tallied(Phase phase, Reg reg, const Lengths& lengths) const;

  /// Most items that can be had: an item without instances ends the array before it.
  uint64_t max_items(const Lengths& lengths) const;
  bool counts(uint64_t max) const { return spec_.min > 1 || max != kInfinite; }
  uint64_t items_length(uint64_t from, uint64_t to, const Lengths& lengths) const;

  ArraySpec spec_;
  WhitespaceRun whitespace_;
  uint64_t max_ = kInfinite;  // what can be had of `spec_.max`
  std::unique_ptr<ItemPlan> plan_;
};

}  // namespace constrain::json
