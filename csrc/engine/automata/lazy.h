// Base classes of lazily built automata: rows made on first use, and searches that prove states live.
#pragma once

#include <optional>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/base/arena.h"
#include "engine/base/memory_account.h"

namespace constrain {

/// An automaton whose states are live by construction.
class LazyAutomaton : public Automaton {
 public:
  const StateRow& row(State state) final;

 protected:
  /// Writes the transitions of `state`; every target must be live, or is pruned.
  virtual void fill_row(State state, Transitions& row) = 0;

  /// Returns the row that `row` keeps.
  virtual const StateRow* make_row(State state);

  const StateRow* store(const Transitions& row) { return StateRow::make(row, arena_, memory_); }

  MemoryShare memory_;

 private:
  Arena arena_;
  std::vector<const StateRow*> rows_;
};

/// Limits the states that searches of its thread enter together while it lives. For automata that are made of one
/// another, whose budgets would add up.
class JointSearches {
 public:
  /// `where` is for the message of the ResourceLimit.
  JointSearches(size_t budget, const char* where) : outer_(current_), budget_(budget), unspent_(budget), where_(where) {
    current_ = this;
  }
  ~JointSearches() { current_ = outer_; }
  JointSearches(const JointSearches&) = delete;
  JointSearches& operator=(const JointSearches&) = delete;

  /// Counts a state.
  static void enter() {
    if (current_) current_->spend();
  }

 private:
  void spend();

  static thread_local JointSearches* current_;

  JointSearches* outer_;
  size_t budget_, unspent_;
  const char* where_;
};

/// An automaton with raw states that may turn out to be dead. A search decides before such a state is returned, and
/// caches its verdict on every state it visits.
class PrunedAutomaton : public LazyAutomaton {
 public:
  State start() final;

 protected:
  enum class Verdict : uint8_t { unknown, live, dead, in_search };

  explicit PrunedAutomaton(size_t budget) : budget_(budget), unspent_(budget) {}

  virtual State raw_start() = 0;

  /// `live` or `dead` if that is obvious (`live` at least for accepting states), else `unknown`.
  virtual Verdict glance(State state) = 0;

 private:
  class Search;

  const StateRow* make_row(State state) final;
  bool is_live(State state);
  Verdict& verdict(State state);
  const StateRow& raw_row(State state);

  std::optional<State> start_;  // once asked for
  std::vector<Verdict> verdicts_;
  std::vector<uint32_t> edges_to_;         // by state: edges of the search under way up to the last to it; else 0
  std::vector<const StateRow*> raw_rows_;  // with dead targets; null where none was asked for
  size_t budget_;                          // states that searches may enter
  size_t unspent_;                         // ... of which this many are left
};

}  // namespace constrain
