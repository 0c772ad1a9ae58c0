#include "engine/grammar/rule_bounds.h"

#include <algorithm>

#include "engine/grammar/parse_table.h"

namespace constrain {

namespace {

/// Tokens with more opening brackets get no bound.
constexpr uint32_t kMaxBrackets = 16;

/// Most bytes by which what separates members may delay the end of a frame: a comma, white space, an escape under way.
constexpr uint64_t kSeparators = 12;

/// Nesting of rules beyond which no bound is searched.
constexpr uint32_t kMaxDepth = 200;

}  // namespace

RuleBounds::RuleBounds(const ParseTable& grammar, const Grammar& rules, const Lengths& lengths)
    : grammar_(grammar),
      rules_(rules),
      lengths_(lengths),
      waiting_(rules.rules.size()),
      begun_(rules.rules.size()),
      fresh_(rules.rules.size()),
      opened_(rules.rules.size()),
      callees_(rules.rules.size()) {
  for (RuleId rule = 0; rule < rules.rules.size(); ++rule) {
    if (lengths[rule] == kInfinite) continue;
    callees_[rule] = rules.rules[rule]->callees();
    std::erase_if(callees_[rule], [&](RuleId callee) { return lengths[callee] == kInfinite; });
    (callees_[rule].empty() ? others_ : nesting_).push_back(rule);
    if (callees_[rule].empty()) continue;
    CompletionHints& hints = rules.rules[rule]->completion_hints();
    waiting_[rule] = hints.max_remaining(*this);
    begun_[rule] = hints.max_begun(*this);
    fresh_[rule] = hints.going_on(rules.rules[rule]->start(), 0, *this);
  }
  const uint32_t brackets = reach().nested;
  if (brackets > kMaxBrackets) {
    for (const RuleId rule : nesting_) opened_[rule] = kInfinite;
    return;
  }
  // One bracket opens the rule itself, each further one opens a nested rule.
  for (uint32_t opened = 0; opened < std::max<uint32_t>(brackets, 1); ++opened) open_one_more();
}

const TokenReach& RuleBounds::reach() const { return grammar_.tokens().reach; }

uint64_t RuleBounds::to_differ(RuleId rule) {
  const auto [it, added] = to_differ_.try_emplace(rule, kInfinite);
  if (!added || depth_ == kMaxDepth) return it->second;
  ++depth_;
  const uint64_t bytes = rules_.rules[rule]->completion_hints().max_to_differ(*this);
  --depth_;
  return to_differ_[rule] = bytes;
}

uint64_t RuleBounds::count_values(RuleId rule) const { return grammar_.count_values_of(rule); }

/// A frame that has called others needs what it needed before; else it may have begun more.
uint64_t RuleBounds::after_token(RuleId rule, uint64_t remaining, uint64_t opened) const {
  if (begun_[rule] == kInfinite) return add_lengths(waiting_[rule], opened);
  const uint64_t most = add_lengths(add_lengths(remaining, kSeparators), std::max(begun_[rule], opened));
  return std::min(most, add_lengths(waiting_[rule], opened));
}

uint64_t RuleBounds::after_token(RuleId rule, Local state, Reg reg) {
  const auto [bytes, opens] = rules_.rules[rule]->completion_hints().going_on(state, reg, *this);
  return add_lengths(bytes, opens ? opened_[rule] : 0);
}

/// Most bytes to the end of a nesting frame that a token begins, and of the frames that it pushes on it.
uint64_t RuleBounds::begin(RuleId rule, uint64_t opened) const {
  const auto [bytes, opens] = fresh_[rule];
  return std::min(after_token(rule, lengths_[rule], opened), add_lengths(bytes, opens ? opened : 0));
}

/// Lets tokens open one more frame. Rules whose frames are popped at once are followed within the same round.
void RuleBounds::open_one_more() {
  const std::vector<uint64_t> before = opened_;
  for (bool grew = true; grew;) {
    grew = false;
    for (const RuleId rule : nesting_) {
      uint64_t most = opened_[rule];
      for (const RuleId callee : callees_[rule]) {
        const bool stays = waiting_[callee] > 0;
        most = std::max(most, stays ? begin(callee, before[callee]) : opened_[callee]);
      }
      grew |= most > opened_[rule];
      opened_[rule] = most;
    }
  }
}

uint64_t RuleBounds::on_top_of(RuleId rule) {
  return callees_[rule].empty() ? std::max(lengths_[rule], rules_.rules[rule]->completion_hints().max_remaining(*this))
                                : 0;
}

uint64_t RuleBounds::on_top(uint64_t masks) {
  if (masks == masks_) return on_top_;
  masks_ = masks;
  for (const RuleId rule : others_) {
    on_top_ = std::max(on_top_, on_top_of(rule));
  }
  return on_top_;
}

}  // namespace constrain
