#include "engine/grammar/rule.h"

#include <algorithm>
#include <utility>

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

CompletionHints::Outlay CompletionHints::max_outlay(Local, Reg, uint64_t, RuleBounds&) { return {kInfinite, 0, true}; }

uint64_t CompletionHints::max_to_differ(RuleBounds&) { return kInfinite; }

uint64_t CompletionHints::max_growth(Local, Reg, const Lengths&) { return kInfinite; }

uint64_t CompletionHints::count_values(Local, Reg, const ParseTable&) { return 1; }

Lengths Grammar::shortest_words() const {
  Lengths lengths(rules.size(), kInfinite);
  std::vector<std::pair<RuleId, RuleId>> calls;  // callee and caller
  std::vector<RuleId> queue, next;
  std::vector<bool> queued(rules.size(), true);
  queue.reserve(rules.size());
  for (auto id = static_cast<RuleId>(rules.size()); id-- > 0;) {
    for (const RuleId callee : rules[id]->callees()) calls.emplace_back(callee, id);
    queue.push_back(id);  // callees mostly come after their callers, and are measured first
  }
  std::ranges::sort(calls);
  for (; !queue.empty(); queue.swap(next), next.clear()) {
    for (const RuleId id : queue) {
      Deadline::check();
      queued[id] = false;
      const uint64_t length = rules[id]->remaining(rules[id]->start(), 0, lengths);
      if (length >= lengths[id]) continue;
      lengths[id] = length;
      for (const auto& [callee, caller] : std::ranges::equal_range(calls, id, {}, &std::pair<RuleId, RuleId>::first)) {
        if (!queued[caller]) queued[caller] = true, next.push_back(caller);
      }
    }
  }
  return lengths;
}

}  // namespace constrain
