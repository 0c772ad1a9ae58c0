#include "engine/grammar/rule.h"

#include <algorithm>
#include <utility>

#include "engine/base/deadline.h"

namespace constrain {

bool Rule::is_final(Local state, const Lengths& lengths) {
  Expansion expansion;
  expand(state, lengths, expansion);
  return expansion.accepting && expansion.bytes.empty() && expansion.calls.empty();
}

std::vector<RuleId> Rule::callees() const {
  std::vector<RuleId> all;
  add_callees(all);
  return all;
}

MaskHints& Rule::mask_hints() {
  static MaskHints none;
  return none;
}

CompletionHints& Rule::completion_hints() {
  static CompletionHints none;
  return none;
}

Lengths Grammar::shortest_words() const {
  Lengths lengths(rules.size(), kInfinite);
  std::vector<std::pair<RuleId, RuleId>> calls;  // callee and caller
  std::vector<RuleId> queue, next, callees;
  std::vector<bool> queued(rules.size(), true);
  queue.reserve(rules.size()), calls.reserve(2 * rules.size());
  for (auto id = static_cast<RuleId>(rules.size()); id-- > 0;) {
    callees.clear();
    rules[id]->add_callees(callees);
    for (const RuleId callee : callees) calls.emplace_back(callee, id);
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
