#include "engine/automata/lazy.h"

#include <algorithm>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"

namespace constrain {

thread_local JointSearches* JointSearches::current_ = nullptr;

void JointSearches::spend() {
  if (unspent_ == 0) throw ResourceLimit("search_states", budget_, where_);
  --unspent_;
}

const StateRow& LazyAutomaton::row(State state) {
  if (state >= rows_.size()) rows_.resize(state + 1);
  if (!rows_[state]) {
    Deadline::check();
    const StateRow* made = make_row(state);  // may ask for other rows
    rows_[state] = made;
  }
  return *rows_[state];
}

const StateRow* LazyAutomaton::make_row(State state) {
  Transitions row;
  fill_row(state, row);
  return store(row);
}

/// Searches breadth first for a state known to be live. If there is one, all states on the path to it are live; if not,
/// all visited states are dead.
class PrunedAutomaton::Search {
 public:
  explicit Search(PrunedAutomaton& owner) : owner_(owner) {}

  ~Search() {
    for (State state : met_) {
      owner_.edges_to_[state] = 0;
      Verdict& verdict = owner_.verdicts_[state];
      if (verdict == Verdict::in_search) verdict = exhausted_ ? Verdict::dead : Verdict::unknown;
    }
  }

  void run(State root) {
    enter(root);
    for (size_t i = 0; i < met_.size(); ++i) {
      if (!leads_to_life(met_[i])) continue;
      spread_life(met_[i]);
      return;
    }
    exhausted_ = true;
  }

 private:
  /// An edge to some state; `before` counts the edges up to the last one before it to the same state, or is 0.
  struct Edge {
    State from;
    uint32_t before;
  };

  void enter(State state) {
    if (owner_.unspent_ == 0)
      throw ResourceLimit("search_states", owner_.budget_, "while proving a language non-empty");
    JointSearches::enter();
    Deadline::check();
    --owner_.unspent_;
    owner_.verdicts_[state] = Verdict::in_search;
    met_.push_back(state);
  }

  bool leads_to_life(State state) {
    const size_t before = edges_.size();
    bool found = false;
    for (const State target : owner_.raw_row(state).targets()) {
      if (found || target == kDead) continue;
      const Verdict verdict = owner_.verdict(target);
      found = verdict == Verdict::live;
      if (verdict == Verdict::unknown) enter(target);
      if (verdict != Verdict::unknown && verdict != Verdict::in_search) continue;
      edges_.push_back({state, owner_.edges_to_[target]});
      owner_.edges_to_[target] = static_cast<uint32_t>(edges_.size());
    }
    memory_.add((edges_.size() - before) * sizeof(Edge));
    return found;
  }

  void spread_life(State root) {
    std::vector<State> fresh;
    auto revive = [&](State state) {
      if (owner_.verdicts_[state] == Verdict::live) return;
      owner_.verdicts_[state] = Verdict::live;
      fresh.push_back(state);
    };
    revive(root);
    while (!fresh.empty()) {
      const State state = fresh.back();
      fresh.pop_back();
      for (uint32_t edge = owner_.edges_to_[state]; edge; edge = edges_[edge - 1].before) revive(edges_[edge - 1].from);
    }
  }

  PrunedAutomaton& owner_;
  std::vector<State> met_;
  std::vector<Edge> edges_;
  MemoryShare memory_;  // memory of the edges
  bool exhausted_ = false;
};

State PrunedAutomaton::start() {
  if (!start_) {
    const State state = raw_start();
    start_ = state != kDead && is_live(state) ? state : kDead;
  }
  return *start_;
}

PrunedAutomaton::Verdict& PrunedAutomaton::verdict(State state) {
  if (state >= verdicts_.size()) verdicts_.resize(state + 1, Verdict::unknown), edges_to_.resize(state + 1);
  Verdict& verdict = verdicts_[state];
  if (verdict == Verdict::unknown) verdict = glance(state);
  return verdict;
}

bool PrunedAutomaton::is_live(State state) {
  if (verdict(state) == Verdict::unknown) Search(*this).run(state);
  return verdicts_[state] == Verdict::live;
}

/// The transitions of a state, also to dead ones.
const StateRow& PrunedAutomaton::raw_row(State state) {
  if (state >= raw_rows_.size()) raw_rows_.resize(state + 1);
  if (!raw_rows_[state]) {
    const StateRow* made = LazyAutomaton::make_row(state);
    raw_rows_[state] = made;
  }
  return *raw_rows_[state];
}

/// Most rows have no dead targets, and are stored once.
const StateRow* PrunedAutomaton::make_row(State state) {
  const StateRow& raw = raw_row(state);
  const auto is_dead = [this](State target) { return target != kDead && !is_live(target); };
  if (std::ranges::none_of(raw.targets(), is_dead)) return &raw;
  Transitions row;
  for_each_range(raw, [&](uint8_t first, uint8_t last, State to) { row.set(first, last, is_dead(to) ? kDead : to); });
  return store(row);
}

}  // namespace constrain
