// How long the completions of frames can be at most, whatever their states and registers.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/grammar/rule.h"

namespace constrain {

/// Bounds for the rules of one grammar. Frames of two kinds are told apart: those of *nesting* rules, which wait below
/// the frames of what they call, and those of rules without calls, of which a stack has one, on top.
///
/// Used under the grammar's lock.
class RuleBounds {
 public:
  /// More than any array has items.
  static constexpr uint64_t kItems = 1'000'000'000'000;

  /// `rules` are those of `grammar`, and prepared.
  RuleBounds(const ParseTable& grammar, const Grammar& rules, const Lengths& lengths);

  /// Shortest words of the rules.
  const Lengths& lengths() const { return lengths_; }

  /// CompletionHints::max_to_differ; infinite where rules call themselves, or are too deep in one another.
  uint64_t to_differ(RuleId rule);

  /// CompletionHints::count_values of a rule as a whole.
  uint64_t count_values(RuleId rule) const;

  /// Most bytes from a frame of a nesting rule to its end, without the frames above it; 0 for other rules.
  uint64_t waiting(RuleId rule) const { return waiting_[rule]; }

  /// The same of all nesting frames together that one token may put upon a frame of the rule.
  uint64_t opened(RuleId rule) const { return opened_[rule]; }

  /// Most bytes to the end of a frame of a rule without calls, over all rules and over the states that masks have met.
  /// `masks` is the number of masks that were built so far.
  uint64_t on_top(uint64_t masks);

  /// The same of one rule; 0 for nesting rules.
  uint64_t on_top_of(RuleId rule);

 private:
  void open_one_more();

  const ParseTable& grammar_;
  const Grammar& rules_;
  const Lengths& lengths_;
  std::vector<uint64_t> waiting_, opened_;
  std::vector<RuleId> nesting_, others_;
  std::unordered_map<RuleId, uint64_t> to_differ_;
  uint32_t depth_ = 0;                        // of rules that `to_differ` was asked for
  std::vector<std::vector<RuleId>> callees_;  // of nesting rules, those that have words
  uint64_t on_top_ = 0, masks_ = ~uint64_t{0};
};

}  // namespace constrain
