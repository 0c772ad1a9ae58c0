#include "engine/grammar/rule_bounds.h"

#include <algorithm>

#include "engine/grammar/nested_frames.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

namespace {

/// Tokens with more opening brackets get no bound.
constexpr uint32_t kMaxBrackets = 16;

/// Nesting of rules beyond which no bound is searched.
constexpr uint32_t kMaxDepth = 200;

}  // namespace

RuleBounds::RuleBounds(const ParseTable& grammar, const Grammar& rules, const Lengths& lengths)
    : grammar_(grammar), rules_(rules), lengths_(lengths), nesting_(rules.rules.size()), callees_(rules.rules.size()) {
  for (RuleId rule = 0; rule < rules.rules.size(); ++rule) {
    if (lengths[rule] == kInfinite) continue;
    rules.rules[rule]->add_callees(callees_[rule]);
    std::erase_if(callees_[rule], [&](RuleId callee) { return lengths[callee] == kInfinite; });
    if (!nests(rule)) others_.push_back(rule);
  }
}

CompletionHints& RuleBounds::hints(RuleId rule) const { return grammar_.prepared(rule).completion_hints(); }

const TokenReach& RuleBounds::reach() const { return grammar_.tokens().reach; }

uint64_t RuleBounds::to_differ(RuleId rule) {
  const auto [it, added] = to_differ_.try_emplace(rule, kInfinite);
  if (!added || depth_ == kMaxDepth) return it->second;
  ++depth_;
  const uint64_t bytes = hints(rule).max_to_differ(*this);
  --depth_;
  return to_differ_[rule] = bytes;
}

uint64_t RuleBounds::count_values(RuleId rule) const { return grammar_.count_values_of(rule); }

FrameBounds RuleBounds::any_frame(RuleId rule) {
  if (!nests(rule)) return {};
  return {waiting(rule), add_lengths(waiting(rule), opened(rule))};
}

FrameBounds RuleBounds::frame(RuleId rule, Local state, Reg reg) {
  if (!nests(rule) || waiting(rule) == 0) return any_frame(rule);
  const uint64_t now = rules_.rules[rule]->remaining(state, reg, lengths_);
  const uint64_t after = hints(rule).max_outlay(state, reg, now, *this).with(opened(rule));
  return {now, std::min(after, any_frame(rule).after)};
}

uint64_t RuleBounds::waiting(RuleId rule) {
  std::optional<uint64_t>& known = nesting_[rule].waiting;
  if (!known) known = hints(rule).max_remaining(*this);
  return *known;
}

const CompletionHints::Outlay& RuleBounds::fresh(RuleId rule) {
  std::optional<CompletionHints::Outlay>& known = nesting_[rule].fresh;
  if (!known) known = hints(rule).max_outlay(rules_.rules[rule]->start(), 0, lengths_[rule], *this);
  return *known;
}

/// Most bytes of a frame that a token begins, and of those that it pushes on it.
uint64_t RuleBounds::begun(RuleId rule, uint32_t brackets) {
  const CompletionHints::Outlay& own = fresh(rule);
  if (own.rest == kInfinite) return add_lengths(waiting(rule), opened(rule, brackets));
  return own.with(own.opens ? opened(rule, brackets) : 0);
}

/// Most bytes of all nesting frames together that a token with some brackets may push on a frame: one opens the rule
/// that is called, each further one a rule nested in that. Unions are popped at once, and take no bracket.
uint64_t RuleBounds::opened(RuleId rule, uint32_t brackets) {
  if (!nests(rule) || brackets == 0) return 0;
  if (!pushed_) pushed_ = bound_pushed();
  if (const std::optional<uint64_t> known = (*pushed_)[rule]) return *known;
  if (brackets > kMaxBrackets || depth_ == kMaxDepth) return kInfinite;
  std::vector<std::optional<uint64_t>>& known = nesting_[rule].opened;
  known.resize(kMaxBrackets + 1);
  if (known[brackets]) return *known[brackets];
  ++depth_;
  uint64_t most = 0;
  for (const RuleId callee : callees_[rule]) most = std::max(most, pushed_by_bracket(callee, brackets));
  --depth_;
  return *(known[brackets] = most);
}

/// ... by a call of one rule, whose bracket is one of them.
uint64_t RuleBounds::pushed_by_bracket(RuleId callee, uint32_t brackets) {
  if (!nests(callee)) return 0;
  const bool stays = fresh(callee).rest > 0;
  return stays ? begun(callee, brackets - 1) : opened(callee, brackets);
}

/// Bounds what a token pushes on frames of the rules with nested calls, by rule; none for others. See NestedFrames.
std::vector<std::optional<uint64_t>> RuleBounds::bound_pushed() {
  pushed_.emplace(callees_.size());  // so that rules with brackets can be asked meanwhile
  NestedFrames frames(callees_.size());
  for (RuleId rule = 0; rule < callees_.size(); ++rule) {
    if (!nests(rule)) continue;
    const auto calls = hints(rule).nested_calls(*this);
    if (!calls.empty()) frames.add(rule, calls, waiting(rule));
  }
  for (RuleId rule = 0; rule < callees_.size(); ++rule) {
    if (frames.has(rule)) continue;
    frames.set_other(rule, pushed_by_bracket(rule, std::max<uint32_t>(reach().nested, 1)));
  }
  return frames.pushed(reach());
}

ByteSet RuleBounds::first_bytes(RuleId rule) const { return grammar_.row(grammar_.entry(rule)).bytes; }

uint64_t RuleBounds::on_top_of(RuleId rule) {
  return nests(rule) ? 0 : std::max(lengths_[rule], hints(rule).max_remaining(*this));
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
