#include "engine/grammar/rule.h"

#include <deque>

#include "engine/base/deadline.h"

namespace constrain {

bool Rule::apply(Guard, uint8_t, Reg&, Registers&) const { return true; }

void Rule::prepare(const ParseTable&, const Lengths&) {}

bool Rule::refine() { return false; }

bool Rule::is_final(Local state, const Lengths& lengths) {
  Expansion expansion;
  expand(state, lengths, expansion);
  return expansion.accepting && expansion.bytes.empty() && expansion.calls.empty();
}

MaskHints& Rule::mask_hints() {
  static MaskHints none;
  return none;
}

CompletionHints& Rule::completion_hints() {
  static CompletionHints none;
  return none;
}

bool MaskHints::describe(Local, Reg reg, uint64_t, std::vector<uint64_t>&) const { return reg == 0; }

bool MaskHints::outline(Local, Reg, std::vector<uint64_t>&) const { return false; }

WildcardRegion MaskHints::wildcard_region(Local, Reg) { return {}; }

bool MaskHints::skip_wildcard(Local, Reg&, Registers&, std::vector<std::string>&) { return false; }

uint64_t CompletionHints::max_remaining(RuleBounds&) { return kInfinite; }

uint64_t CompletionHints::max_to_differ(RuleBounds&) { return kInfinite; }

uint64_t CompletionHints::max_growth(Local, Reg, const Lengths&) { return kInfinite; }

uint64_t CompletionHints::count_values(Local, Reg, const ParseTable&) { return 1; }

Lengths Grammar::shortest_words() const {
  Lengths lengths(rules.size(), kInfinite);
  std::vector<std::vector<RuleId>> callers(rules.size());
  for (RuleId id = 0; id < rules.size(); ++id) {
    for (const RuleId callee : rules[id]->callees()) callers[callee].push_back(id);
  }
  std::deque<RuleId> queue;
  std::vector<bool> queued(rules.size(), true);
  for (RuleId id = 0; id < rules.size(); ++id) queue.push_back(id);
  while (!queue.empty()) {
    Deadline::check();
    const RuleId id = queue.front();
    queue.pop_front();
    queued[id] = false;
    const uint64_t length = rules[id]->remaining(rules[id]->start(), 0, lengths);
    if (length >= lengths[id]) continue;
    lengths[id] = length;
    for (const RuleId caller : callers[id]) {
      if (!queued[caller]) queued[caller] = true, queue.push_back(caller);
    }
  }
  return lengths;
}

}  // namespace constrain
