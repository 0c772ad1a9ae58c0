// The rule of JSON objects.
#pragma once

#include <vector>

#include "engine/json/object/object_completion_hints.h"
#include "engine/json/object/object_cost.h"
#include "engine/json/object/object_guards.h"
#include "engine/json/object/object_mask_hints.h"
#include "engine/json/object/object_position.h"
#include "engine/json/object/object_shape.h"
#include "engine/json/object/object_state.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

/// An object. Its members come in any order without a state for each permutation: the register holds which names were
/// used, and guards consult it. No key occurs twice.
class ObjectRule final : public Rule {
 public:
  ObjectRule(ObjectSpec spec, Whitespace whitespace);

  Local start() override { return ObjectPosition::encode(ObjectPosition::start); }
  void prepare(const ParseTable& grammar, const Lengths& lengths) override;
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return ObjectPosition::of(state).phase == ObjectPosition::end; }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override {
    return guards_.apply(guard, byte, reg, registers);
  }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override {
    return cost_.remaining(state, reg, lengths);
  }
  void add_callees(std::vector<RuleId>& out) const override;
  MaskHints& mask_hints() override { return mask_hints_; }
  CompletionHints& completion_hints() override { return completion_hints_; }

 private:
  using Test = ObjectGuards::Test;

  void expand_open(uint32_t run, Expansion& out) const;
  void expand_after(Expansion& out) const;
  void expand_value(uint32_t run, uint32_t label, Expansion& out) const;
  void expand_key(uint32_t id, Expansion& out);
  void expand_plain_key(const KeySpelling& at, Expansion& out);
  void start_key(Whitespace::Slot slot, uint32_t run, Expansion& out) const;
  void go(int first, int last, State to, uint32_t escape, Test test, Expansion& out);

  WhitespaceRun whitespace_;
  ObjectShape shape_;
  ObjectState state_;
  ObjectGuards guards_;
  ObjectCost cost_;
  ObjectMaskHints mask_hints_;
  ObjectCompletionHints completion_hints_;
};

}  // namespace constrain::json
