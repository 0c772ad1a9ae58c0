// Rules whose body is a regular language.
#pragma once

#include <optional>
#include <unordered_map>

#include "engine/automata/automaton.h"
#include "engine/grammar/rule.h"

namespace constrain {

/// The role of the words of an automaton.
enum class Words : uint8_t {
  spellings,  ///< spellings of values, possibly several of one value
  values,     ///< different values
  integers    ///< different values if they have no point; `.0` makes no other value
};

/// Matches the words of an automaton, without calls or registers.
class AutomatonRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  /// `shortest` is the length of the shortest words, if it is known.
  explicit AutomatonRule(AutomatonPtr automaton, Words words = Words::spellings,
                         std::optional<uint64_t> shortest = std::nullopt)
      : automaton_(std::move(automaton)), words_(words), shortest_(shortest) {}

  Local start() override { return automaton_->start(); }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths& lengths) override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable&) override;
  uint64_t max_remaining(RuleBounds& bounds) override;
  uint64_t max_to_differ(RuleBounds&) override;
  ByteSet likely_bytes(Local state, Reg reg) override;
  bool shares_registers(Local, Local) const override { return true; }
  uint64_t portable_id() const override { return automaton_->shared_id(); }
  WildcardRegion wildcard_region(Local state, Reg) override { return texts_.from(static_cast<State>(state)); }
  bool skip_wildcard(Local state, Reg&, Registers& registers, std::vector<std::string>&) override {
    const auto at = static_cast<State>(state);
    return registers.only_endings ? texts_.leads_back(at) : texts_.is_loop(at);
  }
  uint64_t max_growth(Local state, Reg, const Lengths&) override;

 private:
  static constexpr size_t kCountBudget = 20'000;

  void meet(State state);
  uint64_t measure(State from);

  AutomatonPtr automaton_;
  Words words_;
  WildcardFinder texts_{[this](State state) -> const StateRow& { return automaton_->row(state); },
                        [this](State state) { return meet(state), uint64_t{0}; },
                        [this](State state) { return automaton_->accepting(state); }};
  std::optional<WordCounter> values_{std::in_place, automaton_, kManyValues, kCountBudget,
                                     words_ == Words::integers ? '.' : '\0'};  // empty once counting has hit its limit
  std::optional<uint64_t> shortest_;  // of all words: the only length that most rules are asked for
  std::unordered_map<State, uint64_t> remaining_;
  std::vector<bool> met_;     // states that texts may reach
  std::vector<State> fresh_;  // those of `met_` that `farthest_` does not cover yet
  uint64_t farthest_ = 0;
};

/// Chooses between rules.
class UnionRule final : public Rule, private CompletionHints {
 public:
  explicit UnionRule(std::vector<RuleId> alternatives = {}) : alternatives_(std::move(alternatives)) {}

  /// Sets the alternatives after construction, for recursive rules.
  void set(std::vector<RuleId> alternatives) { alternatives_ = std::move(alternatives); }

  Local start() override { return 0; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return state == kEnd; }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t max_remaining(RuleBounds&) override { return 0; }
  Outlay max_outlay(Local, Reg, uint64_t, RuleBounds&) override { return {0, 0, true}; }
  uint64_t max_to_differ(RuleBounds& bounds) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable& grammar) override;
  void add_callees(std::vector<RuleId>& out) const override {
    out.insert(out.end(), alternatives_.begin(), alternatives_.end());
  }
  std::span<const RuleId> union_of() const override { return alternatives_; }

 private:
  static constexpr Local kEnd = 1;

  std::vector<RuleId> alternatives_;
};

}  // namespace constrain
