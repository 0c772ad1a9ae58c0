#include "engine/grammar/automaton_rule.h"

#include <algorithm>

#include "engine/automata/shared_automaton.h"
#include "engine/automata/word_bounds.h"
#include "engine/base/errors.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

namespace {

/// Wildcard regions skip the states within a character, which are up to 3 bytes from its end.
constexpr uint64_t kRestOfCharacter = 3;

}  // namespace

void AutomatonRule::expand(Local state, const Lengths&, Expansion& out) {
  if (state == kDead) return;
  for_each_range(automaton_->row(static_cast<State>(state)), [&](uint8_t first, uint8_t last, State to) {
    if (to != kDead) out.range(first, last, to);
  });
  out.accepting = automaton_->accepting(static_cast<State>(state));
}

bool AutomatonRule::is_final(Local state, const Lengths&) {
  if (state != kDead) meet(static_cast<State>(state));
  if (state == kDead || !automaton_->accepting(static_cast<State>(state))) return false;
  const StateRow& row = automaton_->row(static_cast<State>(state));
  return std::ranges::all_of(row.targets(), [](State next) { return next == kDead; });
}

uint64_t AutomatonRule::remaining(Local local, Reg, const Lengths&) {
  if (local == kDead) return kInfinite;
  const auto state = static_cast<State>(local);
  const bool whole = state == automaton_->start();
  if (whole && shortest_) return *shortest_;
  if (const auto cached = remaining_.find(state); cached != remaining_.end()) return cached->second;
  const auto quick = automaton_->shortest(state, kSearchBudget);
  if (whole) return *(shortest_ = quick ? *quick : measure(state));
  return quick ? remaining_[state] = *quick : measure(state);
}

/// Searches breadth first, and stops at states whose distance is cached. Caches the distance of every state on the
/// shortest path, so that one search serves all states of a long word.
uint64_t AutomatonRule::measure(State from) {
  std::unordered_map<State, State> previous{{from, kDead}};
  std::vector<State> level{from}, next;
  uint64_t best = kInfinite;
  State last = kDead;
  for (uint64_t bytes = 0; bytes < best && !level.empty(); ++bytes) {
    next.clear();
    for (const State state : level) {
      if (automaton_->accepting(state)) remaining_.try_emplace(state, 0);
      if (const auto cached = remaining_.find(state); cached != remaining_.end()) {
        if (bytes + cached->second < best) best = bytes + cached->second, last = state;
        continue;
      }
      for (const State to : automaton_->row(state).targets()) {
        if (to != kDead && previous.try_emplace(to, state).second) next.push_back(to);
      }
      if (previous.size() > kSearchBudget) {
        throw ResourceLimit("search_states", kSearchBudget, "while looking for a shortest word");
      }
    }
    level.swap(next);
  }
  uint64_t bytes = remaining_.at(last);
  for (State at = previous.at(last); at != kDead; at = previous.at(at)) remaining_[at] = ++bytes;
  return bytes;
}

/// If many bytes lead closer to the end, characters of several bytes may do so as well, and none is preferred.
ByteSet AutomatonRule::likely_bytes(Local local, Reg reg) {
  constexpr int kFew = 32;
  if (local == kDead) return ByteSet::all();
  const uint64_t here = remaining(local, reg, {});
  ByteSet nearer;
  for_each_range(automaton_->row(static_cast<State>(local)), [&](uint8_t first, uint8_t last, State to) {
    if (to != kDead && remaining(to, reg, {}) < here) nearer.add(first, last);
  });
  return nearer.count() > kFew ? ByteSet::all() : nearer;
}

void AutomatonRule::meet(State state) {
  if (portable_id()) return;
  if (state >= met_.size()) met_.resize(state + 1);
  if (met_[state]) return;
  met_[state] = true;
  fresh_.push_back(state);
}

uint64_t AutomatonRule::max_remaining(RuleBounds& bounds) {
  if (portable_id()) return automaton_->farthest();
  for (; !fresh_.empty() && farthest_ != kInfinite; fresh_.pop_back()) {
    try {
      farthest_ = std::max(farthest_, remaining(fresh_.back(), 0, bounds.lengths()));
    } catch (const ResourceLimit&) {
      farthest_ = kInfinite;
    }
  }
  return add_lengths(farthest_, kRestOfCharacter);
}

/// In a loop, texts need at most the continuation bytes of one character.
uint64_t AutomatonRule::max_growth(Local state, Reg, const Lengths&) {
  return texts_.is_loop(static_cast<State>(state)) ? kRestOfCharacter : automaton_->farthest();
}

uint64_t AutomatonRule::max_to_differ(RuleBounds&) {
  constexpr size_t kMaxStates = 4096;
  if (portable_id() && words_ != Words::spellings) return SharedAutomaton::kToDiffer;
  // Bytes of length 2 do not count as ways to further values.
  const auto length = [&](uint8_t byte) { return words_ == Words::integers && byte == '.' ? 2 : 1; };
  const auto words = word_bounds(*automaton_, RuleBounds::kItems, kMaxStates, length);
  return words && (words_ != Words::spellings || !words->endless) ? words->rest : kInfinite;
}

uint64_t AutomatonRule::count_values(Local state, Reg, const ParseTable&) {
  if (words_ == Words::spellings || !values_) return 1;
  const auto known = automaton_->least_words(static_cast<State>(state));
  if (known && words_ == Words::values) return std::min(*known, kManyValues);
  try {
    return values_->count(static_cast<State>(state));
  } catch (const ResourceLimit&) {
    // The lower bound stays 1 from here on.
    values_.reset();
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

uint64_t UnionRule::max_to_differ(RuleBounds& bounds) {
  uint64_t most = 0;
  for (const RuleId alternative : alternatives_) {
    if (bounds.lengths()[alternative] != kInfinite) most = std::max(most, bounds.to_differ(alternative));
  }
  return most;
}

uint64_t UnionRule::count_values(Local state, Reg, const ParseTable& grammar) {
  uint64_t most = 1;
  if (state == kEnd) return most;
  for (const RuleId alternative : alternatives_) most = std::max(most, grammar.count_values_of(alternative));
  return most;
}

}  // namespace constrain
