#include "engine/grammar/leading_space.h"

namespace constrain {

namespace {

class LeadingSpaceRule final : public Rule, private CompletionHints {
 public:
  explicit LeadingSpaceRule(RuleId text) : text_(text) {}

  Local start() override { return kStart; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths&, Expansion& out) override {
    if (state == kStart) out.byte(' ', kText);
    if (state == kEnd) {
      out.accepting = true;
    } else {
      out.call(text_, kEnd);
    }
  }
  uint64_t remaining(Local state, Reg, const Lengths& lengths) override { return state == kEnd ? 0 : lengths[text_]; }
  uint64_t max_remaining(RuleBounds&) override { return 0; }
  Outlay max_outlay(Local, Reg, uint64_t, RuleBounds&) override { return {0, 0, true}; }
  void add_callees(std::vector<RuleId>& out) const override { out.push_back(text_); }

 private:
  enum : Local { kStart, kText, kEnd };

  RuleId text_;
};

}  // namespace

void allow_leading_space(Grammar& grammar) {
  grammar.root = grammar.add(std::make_unique<LeadingSpaceRule>(grammar.root));
}

}  // namespace constrain
