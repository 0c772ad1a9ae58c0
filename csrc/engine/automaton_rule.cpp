#include "engine/automaton_rule.h"

#include <algorithm>

#include "engine/compiled_grammar.h"
#include "engine/errors.h"

namespace constrain {

void AutomatonRule::expand(Local state, const Lengths&, Expansion& out) {
  if (state == kDead) return;
  const StateRow& row = automaton_->row(static_cast<State>(state));
  for (int first = 0, last; first < 256; first = last + 1) {
    for (last = first; last < 255 && row[last + 1] == row[first];) ++last;
    if (row[first] != kDead) out.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last), row[first]);
  }
  out.accepting = automaton_->accepting(static_cast<State>(state));
}

bool AutomatonRule::final(Local state, const Lengths&) {
  if (state == kDead || !automaton_->accepting(static_cast<State>(state))) return false;
  const StateRow& row = automaton_->row(static_cast<State>(state));
  return std::all_of(row.begin(), row.end(), [](State next) { return next == kDead; });
}

uint64_t AutomatonRule::remaining(Local state, Reg, const Lengths&) {
  if (state == kDead) return kInfinite;
  if (const auto known = remaining_.find(state); known != remaining_.end()) return known->second;
  if (const auto known = automaton_->shortest(static_cast<State>(state), kSearchBudget)) {
    return remaining_[state] = *known;
  }
  // What is found for one state of a long word holds for those that follow.
  const std::vector<State> way = shortest_way(*automaton_, static_cast<State>(state));
  for (size_t i = 0; i < way.size(); ++i) remaining_.try_emplace(way[i], way.size() - 1 - i);
  return remaining_[state];
}

uint64_t AutomatonRule::variety(Local state, Reg, const CompiledGrammar&) {
  if (!words_are_values_ || !words_) return 1;
  try {
    return words_->count(static_cast<State>(state));
  } catch (const ResourceLimit&) {
    // There is one value at least, and those who want to know more must look for them.
    words_.reset();
    return 1;
  }
}

void UnionRule::expand(Local state, const Lengths& lengths, Expansion& out) {
  out.accepting = state == kEnd;
  if (state == kEnd) return;
  for (const RuleId alternative : alternatives_) {
    if (lengths[alternative] != kInfinite) out.call(alternative, kEnd);
  }
}

uint64_t UnionRule::remaining(Local state, Reg, const Lengths& lengths) {
  if (state == kEnd) return 0;
  uint64_t best = kInfinite;
  for (const RuleId alternative : alternatives_) best = std::min(best, lengths[alternative]);
  return best;
}

uint64_t UnionRule::variety(Local state, Reg, const CompiledGrammar& grammar) {
  uint64_t most = 1;
  if (state == kEnd) return most;
  for (const RuleId alternative : alternatives_) most = std::max(most, grammar.variety_of(alternative));
  return most;
}

}  // namespace constrain
