// Upper bounds on completions of frames, over all states and registers.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/grammar/rule.h"
#include "engine/text/token_reach.h"

namespace constrain {

/// Bytes that suffice to complete a frame or a stack, except for a top frame of a rule without calls.
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

  /// `rules` are those of `grammar`.
  RuleBounds(const ParseTable& grammar, const Grammar& rules, const Lengths& lengths);

  /// Shortest words of the rules.
  const Lengths& lengths() const { return lengths_; }

  /// Calls CompletionHints::max_to_differ; infinite for recursive or deeply nested rules.
  uint64_t to_differ(RuleId rule);

  /// Calls CompletionHints::count_values for a rule's start.
  uint64_t count_values(RuleId rule) const;

  /// Bounds frames of a nesting rule in any state; 0 for other rules. `now` leaves out what the frame calls, `after`
  /// includes all frames that a token pushes on it.
  FrameBounds any_frame(RuleId rule);

  /// ... and in one state.
  FrameBounds frame(RuleId rule, Local state, Reg reg);

  /// How far tokens lead.
  const TokenReach& reach() const;

  /// Bytes by which words of a rule begin.
  ByteSet first_bytes(RuleId rule) const;

  /// Most bytes to the end of a top frame, over all rules without calls and all states that masks have met. `masks` is
  /// the number of masks built so far.
  uint64_t on_top(uint64_t masks);

  /// Most bytes to the end of a top frame of one rule; 0 for nesting rules.
  uint64_t on_top_of(RuleId rule);

 private:
  /// Bounds of a nesting rule, computed on first use.
  struct Nesting {
    std::optional<uint64_t> waiting;
    std::optional<CompletionHints::Outlay> fresh;  // of frames that have just begun
    std::vector<std::optional<uint64_t>> opened;   // by the number of brackets
  };

  CompletionHints& hints(RuleId rule) const;
  bool nests(RuleId rule) const { return !callees_[rule].empty(); }
  uint64_t waiting(RuleId rule);
  const CompletionHints::Outlay& fresh(RuleId rule);
  uint64_t opened(RuleId rule) { return opened(rule, std::max<uint32_t>(reach().nested, 1)); }
  uint64_t opened(RuleId rule, uint32_t brackets);
  uint64_t begun(RuleId rule, uint32_t brackets);
  uint64_t pushed_by_bracket(RuleId callee, uint32_t brackets);
  std::vector<std::optional<uint64_t>> bound_pushed();

  const ParseTable& grammar_;
  const Grammar& rules_;
  const Lengths& lengths_;
  std::vector<Nesting> nesting_;  // by rule
  std::vector<RuleId> others_;
  std::unordered_map<RuleId, uint64_t> to_differ_;
  std::optional<std::vector<std::optional<uint64_t>>> pushed_;  // by rule, for those with nested calls
  uint32_t depth_ = 0;                                          // recursion of `to_differ` and `opened`
  std::vector<std::vector<RuleId>> callees_;                    // inhabited callees of nesting rules
  uint64_t on_top_ = 0, masks_ = ~uint64_t{0};
};

}  // namespace constrain
