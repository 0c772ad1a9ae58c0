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
  /// Writes all 256 transitions of `state`; every target must be live.
  virtual void fill_row(State state, Transitions& row) = 0;

  MemoryShare memory_;

  const StateRow* store(const Transitions& row) { return StateRow::make(row, arena_, memory_); }

 private:
  Arena arena_;
  std::vector<const StateRow*> rows_;
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
  virtual void fill_raw_row(State state, Transitions& row) = 0;

  /// `live` or `dead` if that is obvious (`live` at least for accepting states), else `unknown`.
  virtual Verdict glance(State state) = 0;

 private:
  class Search;

  void fill_row(State state, Transitions& row) final;
  bool is_live(State state);
  Verdict& verdict(State state);
  const StateRow& raw_row(State state);

  std::optional<State> start_;  // once asked for
  std::vector<Verdict> verdicts_;
  std::vector<const StateRow*> raw_rows_;  // of states that searches met; null for others
  size_t budget_;                          // states that searches may enter
  size_t unspent_;                         // ... of which this many are left
};

}  // namespace constrain
