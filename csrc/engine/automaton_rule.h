// Rules whose body is a regular language.
#pragma once

#include <unordered_map>

#include "engine/automaton.h"
#include "engine/rule.h"

namespace constrain {

/// A rule without calls or registers: exactly the words of an automaton.
class AutomatonRule final : public Rule {
 public:
  explicit AutomatonRule(AutomatonPtr automaton) : automaton_(std::move(automaton)) {}

  Local start() override { return automaton_->start(); }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool final(Local state, const Lengths& lengths) override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  FreeText free_text(Local state, Reg) override {
    const auto final = [this](State at) { return automaton_->accepting(at); };
    return texts_.find(static_cast<State>(state), [](State) { return true; }, final);
  }

 private:
  AutomatonPtr automaton_;
  FreeTextFinder texts_{[this](State state) -> const StateRow& { return automaton_->row(state); }};
  std::unordered_map<Local, uint64_t> remaining_;
};

/// A choice between rules.
class UnionRule final : public Rule {
 public:
  explicit UnionRule(std::vector<RuleId> alternatives = {}) : alternatives_(std::move(alternatives)) {}

  /// For rules that are made before what they choose from, as recursion needs.
  void set(std::vector<RuleId> alternatives) { alternatives_ = std::move(alternatives); }

  Local start() override { return 0; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool final(Local state, const Lengths&) override { return state == kEnd; }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  std::vector<RuleId> callees() const override { return alternatives_; }

 private:
  static constexpr Local kEnd = 1;

  std::vector<RuleId> alternatives_;
};

}  // namespace constrain
