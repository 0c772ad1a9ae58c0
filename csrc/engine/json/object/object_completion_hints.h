// Completion hints of an object rule: how long its end may get, and how many values it may have.
#pragma once

#include <optional>

#include "engine/json/object/object_cost.h"
#include "engine/json/object/object_state.h"

namespace constrain::json {

class ObjectCompletionHints final : public CompletionHints {
 public:
  ObjectCompletionHints(const ObjectShape& shape, const ObjectState& state, ObjectCost& cost,
                        const WhitespaceRun& whitespace)
      : shape_(shape), state_(state), cost_(cost), whitespace_(whitespace) {}

  ByteSet likely_bytes(Local state, Reg reg) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable& grammar) override;
  uint64_t max_growth(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t max_remaining(RuleBounds& bounds) override;
  Outlay max_outlay(Local state, Reg reg, uint64_t now, RuleBounds& bounds) override;
  uint64_t max_to_differ(RuleBounds& bounds) override;
  Reg ending(Local state, Reg reg, Registers& registers) const override;

 private:
  using Members = ObjectMembers;
  using Outlook = ObjectOutlook;

  /// Bytes of a member besides its name and its value: a comma, white space, or an escape under way.
  static constexpr uint64_t kMemberBytes = 10;

  template <class Offer>
  void offer_keys(uint64_t spelling, const Members& members, const Outlook& outlook, const Offer& offer);
  const std::optional<WordBounds>& key_bounds(uint32_t others) const;
  static uint64_t longest_member(uint64_t key, std::span<const ObjectSpec::Choice> choices, const Lengths& lengths);
  void measure_members(const Lengths& lengths);
  uint64_t longest_member(State content, const Members& members, const Lengths& lengths);
  bool counts_alone() const;
  uint64_t go_on(uint64_t now, const Members& members, RuleBounds& bounds);
  Outlay begin_member(uint32_t spelling, uint64_t now, const Members& members, RuleBounds& bounds);

  const ObjectShape& shape_;
  const ObjectState& state_;
  ObjectCost& cost_;
  const WhitespaceRun& whitespace_;
  std::vector<uint64_t> longest_;  // by property: bytes of a member with its longest value
};

}  // namespace constrain::json
