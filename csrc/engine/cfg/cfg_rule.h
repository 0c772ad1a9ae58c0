// Rules with context-free bodies.
#pragma once

#include <utility>

#include "engine/cfg/cfg_body.h"
#include "engine/grammar/rule.h"
#include "engine/grammar/rule_bounds.h"

namespace constrain::cfg {

/// A rule whose body calls other rules and reads no bytes itself. The symbols of its edges are rule numbers.
class BodyRule final : public Rule, private CompletionHints {
 public:
  explicit BodyRule(Body body) : body_(std::move(body)) {}

  Local start() override { return 0; }
  CompletionHints& completion_hints() override { return *this; }
  void prepare(const ParseTable&, const Lengths& lengths) override { remaining_ = measure(lengths); }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return body_.states[state].edges.empty(); }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  void add_callees(std::vector<RuleId>& out) const override;

 private:
  uint64_t max_remaining(RuleBounds& bounds) override;
  std::vector<NestedCall> nested_calls(RuleBounds& bounds) const override;
  Outlay max_outlay(Local state, Reg reg, uint64_t now, RuleBounds& bounds) override;
  std::vector<bool> reached(uint32_t from) const;
  std::vector<uint64_t> measure(const Lengths& lengths) const;

  Body body_;
  std::vector<uint64_t> remaining_;  ///< by state, once `prepare` was called
};

/// A repetition of `min` to `max` words of one rule, counted in the register, not unrolled. `min` is at least 1.
class CountedRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  CountedRule(RuleId element, uint64_t min, uint64_t max) : element_(element), min_(min), max_(max) {}

  Local start() override { return kStart; }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  void add_callees(std::vector<RuleId>& out) const override { out.push_back(element_); }

 private:
  // In `kFewer` and `kEnough` the register holds the number of words begun, minus one.
  enum : Local { kStart, kFewer, kEnough };
  enum : Guard { kStillFewer = 1, kNowEnough, kOneMore };

  uint64_t max_remaining(RuleBounds& bounds) override;
  std::vector<NestedCall> nested_calls(RuleBounds& bounds) const override;
  Outlay max_outlay(Local state, Reg reg, uint64_t now, RuleBounds& bounds) override;
  Local after_first() const { return min_ > 1 ? kFewer : kEnough; }

  RuleId element_;
  uint64_t min_, max_;
};

}  // namespace constrain::cfg
