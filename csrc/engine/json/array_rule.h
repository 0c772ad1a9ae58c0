// JSON arrays.
#pragma once

#include "engine/json/whitespace.h"
#include "engine/rule.h"

namespace constrain::json {

/// Which items an array has: item i follows `prefix[i]`, or `rest` beyond the prefix.
struct ArraySpec {
  std::vector<RuleId> prefix;
  RuleId rest = 0;
  uint64_t min = 0, max = kInfinite;
};

/// An array; the register counts its items where the bounds need that.
class ArrayRule final : public Rule {
 public:
  ArrayRule(ArraySpec spec, Whitespace whitespace) : spec_(std::move(spec)), whitespace_(whitespace) {}

  Local start() override { return encode(Phase::start); }
  void prepare(const Lengths& lengths) override { max_ = max_items(lengths); }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool final(Local state, const Lengths&) override { return state == encode(Phase::end); }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  std::vector<RuleId> callees() const override;

 private:
  enum class Phase : uint32_t { start, open, item, after, before_comma, closing, end };
  /// Tests, which may be combined; those of indentation carry the spaces so far above the flags.
  static constexpr Guard kItem = 1, kComma = 2, kClose = 4, kSpace = 8, kIndented = 16, kInner = 32;
  static constexpr int kFlagBits = 6;

  /// A state: the phase, the white space run, and the number of items so far (which stops at the end of the prefix).
  static Local encode(Phase phase, uint32_t run = 0, uint32_t index = 0) {
    return Local{index} << 32 | run << 4 | static_cast<uint32_t>(phase);
  }
  Guard space(uint32_t run, Guard level) const;
  Guard indented(uint32_t run, Guard level) const;
  RuleId item(uint64_t index) const { return index < spec_.prefix.size() ? spec_.prefix[index] : spec_.rest; }

  /// Most items that can be had: an item without instances ends the array before it.
  uint64_t max_items(const Lengths& lengths) const;
  bool counts(uint64_t max) const { return spec_.min > 1 || max != kInfinite; }
  uint64_t items_length(uint64_t from, uint64_t to, const Lengths& lengths) const;

  ArraySpec spec_;
  WhitespaceRun whitespace_;
  uint64_t max_ = kInfinite;  // what can be had of `spec_.max`
};

}  // namespace constrain::json
