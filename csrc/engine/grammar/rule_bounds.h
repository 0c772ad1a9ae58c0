// Upper bounds on completions of frames, over all states and registers.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/grammar/rule.h"

namespace constrain {

struct TokenReach;

/// Bytes that suffice to complete a frame or a stack, but for a top frame of a rule without calls.
struct FrameBounds {
  uint64_t now = 0;    ///< ... as it is
  uint64_t after = 0;  ///< ... and after any next token
};

/// Bounds completions for the rules of one grammar. Frames of *nesting* rules wait as parents of what they call; rules
/// without calls have only top frames, one on each stack.
///
/// Used under the grammar's lock.
class RuleBounds {
 public:
  /// More than any array has items.
  static constexpr uint64_t kItems = 1'000'000'000'000;

  /// `rules` are those of `grammar`, prepared.
  RuleBounds(const ParseTable& grammar, const Grammar& rules, const Lengths& lengths);

  /// Shortest words of the rules.
  const Lengths& lengths() const { return lengths_; }

  /// Calls CompletionHints::max_to_differ; infinite for recursive or deeply nested rules.
  uint64_t to_differ(RuleId rule);

  /// Calls CompletionHints::count_values for a rule's start.
  uint64_t count_values(RuleId rule) const;

  /// Most bytes from a frame of a nesting rule to its end, without its callees; 0 for other rules.
  uint64_t waiting(RuleId rule) const { return waiting_[rule]; }

  /// Most bytes, one token later, to the end of a nesting frame that needs `remaining` ones, and of all the frames that
  /// the token pushes on it.
  uint64_t after_token(RuleId rule, uint64_t remaining) const { return after_token(rule, remaining, opened_[rule]); }

  /// ... and to the end of a frame in `state`, by CompletionHints::going_on.
  uint64_t after_token(RuleId rule, Local state, Reg reg);

  /// How far tokens lead.
  const TokenReach& reach() const;

  /// Most bytes to the end of a top frame, over all rules without calls and all states that masks have met. `masks` is
  /// the number of masks built so far.
  uint64_t on_top(uint64_t masks);

  /// Most bytes to the end of a top frame of one rule; 0 for nesting rules.
  uint64_t on_top_of(RuleId rule);

 private:
  uint64_t after_token(RuleId rule, uint64_t remaining, uint64_t opened) const;
  uint64_t begin(RuleId rule, uint64_t opened) const;
  void open_one_more();

  const ParseTable& grammar_;
  const Grammar& rules_;
  const Lengths& lengths_;
  std::vector<uint64_t> waiting_, begun_;
  std::vector<CompletionHints::GoingOn> fresh_;  // of frames that have just begun
  std::vector<uint64_t> opened_;  // most bytes of all nesting frames together that one token may push on a frame
  std::vector<RuleId> nesting_, others_;
  std::unordered_map<RuleId, uint64_t> to_differ_;
  uint32_t depth_ = 0;                        // recursion of `to_differ`
  std::vector<std::vector<RuleId>> callees_;  // inhabited callees of nesting rules
  uint64_t on_top_ = 0, masks_ = ~uint64_t{0};
};

}  // namespace constrain
