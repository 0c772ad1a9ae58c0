#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/automaton.h"
#include "engine/errors.h"
#include "engine/lazy.h"

namespace constrain {

namespace {

void spend(size_t states, size_t budget) {
  if (states > budget) throw ResourceLimit("search_states", budget, "while measuring a language");
}

/// Counts words depth first, children before parents.
class WordCounter {
 public:
  WordCounter(Automaton& automaton, uint64_t cap, size_t budget) : automaton_(automaton), cap_(cap), budget_(budget) {}

  uint64_t count(State root) {
    enter(root);
    while (!path_.empty()) {
      Frame& frame = path_.back();
      if (frame.next_byte == 256) {
        finish();
        continue;
      }
      const State target = automaton_.row(frame.state)[frame.next_byte];
      if (target == kDead) {
        ++frame.next_byte;
        continue;
      }
      const auto known = counts_.find(target);
      if (known == counts_.end()) {
        enter(target);
        continue;
      }
      // A state on the path leads back to itself, and being live it does so by way of infinitely many words.
      if (known->second == kOnPath) return cap_;
      frame.words = add(frame.words, known->second);
      ++frame.next_byte;
    }
    return counts_.at(root);
  }

 private:
  static constexpr uint64_t kOnPath = ~uint64_t{0};

  struct Frame {
    State state;
    uint32_t next_byte;
    uint64_t words;
  };

  uint64_t add(uint64_t a, uint64_t b) const { return a >= cap_ - std::min(b, cap_) ? cap_ : a + b; }

  void enter(State state) {
    counts_.emplace(state, kOnPath);
    spend(counts_.size(), budget_);
    path_.push_back({state, 0, add(0, automaton_.accepting(state) ? 1 : 0)});
  }

  void finish() {
    counts_[path_.back().state] = std::min(path_.back().words, kOnPath - 1);
    path_.pop_back();
  }

  Automaton& automaton_;
  uint64_t cap_;
  size_t budget_;
  std::vector<Frame> path_;
  std::unordered_map<State, uint64_t> counts_;
};

}  // namespace

bool is_empty(Automaton& automaton) { return automaton.start() == kDead; }

uint32_t shortest_length(Automaton& automaton, State state, size_t budget) {
  std::vector<State> level = {state}, next;
  std::unordered_set<State> seen = {state};
  for (uint32_t length = 0;; ++length) {
    next.clear();
    for (State at : level) {
      if (automaton.accepting(at)) return length;
      for_each_run(automaton.row(at), [&](State target) {
        if (seen.insert(target).second) next.push_back(target);
      });
      spend(seen.size(), budget);
    }
    std::swap(level, next);
  }
}

uint64_t count_words(Automaton& automaton, State state, uint64_t cap, size_t budget) {
  return state == kDead ? 0 : WordCounter(automaton, cap, budget).count(state);
}

std::vector<std::string> enumerate_words(Automaton& automaton, size_t cap) {
  if (count_words(automaton, automaton.start(), cap + 1) > cap) {
    throw ResourceLimit("words", cap, "while listing a language");
  }
  std::vector<std::string> words;
  std::string word;
  struct Frame {
    State state;
    uint32_t next_byte;
  };
  std::vector<Frame> path;
  auto enter = [&](State state) {
    if (state == kDead) return;
    if (automaton.accepting(state)) words.push_back(word);
    path.push_back({state, 0});
  };
  enter(automaton.start());
  while (!path.empty()) {
    Frame& frame = path.back();
    if (frame.next_byte == 256) {
      path.pop_back();
      if (!path.empty()) word.pop_back();
      continue;
    }
    const uint32_t byte = frame.next_byte++;
    const State target = automaton.row(frame.state)[byte];
    if (target == kDead) continue;
    word.push_back(static_cast<char>(byte));
    enter(target);
  }
  return words;
}

}  // namespace constrain
