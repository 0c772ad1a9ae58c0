#include "engine/lazy.h"

#include <algorithm>

#include "engine/errors.h"

namespace constrain {

const StateRow& LazyAutomaton::row(State state) {
  if (state >= rows_.size()) rows_.resize(state + 1);
  if (!rows_[state]) {
    auto fresh = std::make_unique<StateRow>();
    fill_row(state, *fresh);
    rows_[state] = std::move(fresh);
  }
  return *rows_[state];
}

/// Depth-first search for an accepting state. When one is found, every state met so far has a verdict: those that lead
/// back to the current path are live, and all others were left for good without success, so they are dead.
class PrunedAutomaton::Search {
 public:
  explicit Search(PrunedAutomaton& owner) : owner_(owner) {}

  ~Search() {
    for (State state : met_) {
      Verdict& verdict = owner_.verdicts_[state];
      if (verdict == Verdict::in_search) verdict = finished_ ? Verdict::dead : Verdict::unknown;
    }
  }

  void run(State root) {
    enter(root);
    while (!path_.empty() && !advance()) {
    }
    finished_ = true;
  }

 private:
  struct Frame {
    State state;
    size_t first_pending;
  };
  struct Edge {
    State from, to;
  };

  void enter(State state) {
    if (owner_.budget_ == 0) throw ResourceLimit("search_states", kSearchBudget, "while proving a language non-empty");
    --owner_.budget_;
    owner_.verdicts_[state] = Verdict::in_search;
    met_.push_back(state);
    path_.push_back({state, pending_.size()});
    owner_.fill_raw_row(state, row_);
    for_each_run(row_, [&](State target) { pending_.push_back(target); });
  }

  /// Looks at one more edge; true where it ends the search.
  bool advance() {
    const Frame frame = path_.back();
    if (pending_.size() == frame.first_pending) {
      path_.pop_back();
      return false;
    }
    const State target = pending_.back();
    pending_.pop_back();
    const Verdict verdict = owner_.verdict(target);
    if (verdict == Verdict::dead) return false;
    if (verdict == Verdict::live) {
      spread_life();
      return true;
    }
    edges_.push_back({frame.state, target});
    if (verdict == Verdict::unknown) enter(target);
    return false;
  }

  void spread_life() {
    std::ranges::sort(edges_, {}, &Edge::to);
    std::vector<State> fresh;
    auto revive = [&](State state) {
      if (owner_.verdicts_[state] != Verdict::in_search) return;
      owner_.verdicts_[state] = Verdict::live;
      fresh.push_back(state);
    };
    for (const Frame& frame : path_) revive(frame.state);
    while (!fresh.empty()) {
      const State state = fresh.back();
      fresh.pop_back();
      for (const Edge& edge : std::ranges::equal_range(edges_, state, {}, &Edge::to)) revive(edge.from);
    }
  }

  PrunedAutomaton& owner_;
  StateRow row_;
  std::vector<Frame> path_;
  std::vector<State> pending_, met_;
  std::vector<Edge> edges_;
  bool finished_ = false;
};

State PrunedAutomaton::start() {
  const State state = raw_start();
  return state != kDead && is_live(state) ? state : kDead;
}

PrunedAutomaton::Verdict& PrunedAutomaton::verdict(State state) {
  if (state >= verdicts_.size()) verdicts_.resize(state + 1, Verdict::unknown);
  Verdict& known = verdicts_[state];
  if (known == Verdict::unknown) known = glance(state);
  return known;
}

bool PrunedAutomaton::is_live(State state) {
  if (verdict(state) == Verdict::unknown) Search(*this).run(state);
  return verdicts_[state] == Verdict::live;
}

void PrunedAutomaton::fill_row(State state, StateRow& row) {
  fill_raw_row(state, row);
  State seen = kDead, shown = kDead;
  for (State& target : row) {
    if (target != seen) {
      seen = target;
      shown = target != kDead && is_live(target) ? target : kDead;
    }
    target = shown;
  }
}

}  // namespace constrain
