#include <algorithm>
#include <unordered_map>

#include "engine/automata/automaton.h"
#include "engine/automata/lazy.h"
#include "engine/base/errors.h"

namespace constrain {

namespace {

void spend(size_t states, size_t budget) {
  if (states > budget) throw ResourceLimit("search_states", budget, "while measuring a language");
}

}  // namespace

bool is_empty(Automaton& automaton) { return automaton.start() == kDead; }

std::vector<State> shortest_way(Automaton& automaton, State state, size_t budget) {
  std::vector<State> met = {state};
  std::unordered_map<State, State> before = {{state, kDead}};
  size_t next = 0;
  for (; !automaton.accepting(met[next]); ++next) {
    for (const State target : automaton.row(met[next]).targets()) {
      if (target != kDead && before.emplace(target, met[next]).second) met.push_back(target);
    }
    spend(met.size(), budget);
  }
  std::vector<State> way;
  for (State at = met[next]; at != kDead; at = before.at(at)) way.push_back(at);
  std::ranges::reverse(way);
  return way;
}

uint32_t shortest_length(Automaton& automaton, State state, size_t budget) {
  if (const auto quick = automaton.shortest(state, budget)) return *quick;
  return static_cast<uint32_t>(shortest_way(automaton, state, budget).size() - 1);
}

uint64_t WordCounter::count(State root) {
  if (root == kDead) return 0;
  if (const auto cached = counts_.find(root); cached != counts_.end()) return cached->second;
  if (excluded_ == 0 && automaton_->least_words(root).value_or(0) >= cap_) return cap_;
  if (are_many(root)) return counts_[root] = cap_;
  enter(root);
  while (!path_.empty()) {
    Frame& frame = path_.back();
    const StateRow& row = automaton_->row(frame.state);
    if (frame.next_range == row.ranges() || frame.words == cap_) {
      finish();
      continue;
    }
    const State target = row.target(frame.next_range);
    if (target == kDead || (excluded_ != 0 && row.first(frame.next_range) == excluded_)) {
      ++frame.next_range;
      continue;
    }
    const auto cached = counts_.find(target);
    if (cached == counts_.end()) {
      enter(target);
    } else if (cached->second == kOnPath) {
      // The state is on a cycle, and live, so it has infinitely many words; so do all states that lead to it.
      frame.words = cap_;
    } else {
      const uint64_t bytes = row.last(frame.next_range) - row.first(frame.next_range) + 1u;
      frame.words = add(frame.words, cached->second > cap_ / bytes ? cap_ : cached->second * bytes);
      ++frame.next_range;
    }
  }
  return counts_.at(root);
}

/// True if `cap_` texts of some small length begin words, as each text does that an automaton can read.
bool WordCounter::are_many(State root) {
  constexpr size_t kLongest = 12, kMostStates = 16;
  constexpr uint64_t kFew = uint64_t{1} << 20;
  if (excluded_ != 0 || cap_ > kFew) return false;
  struct Texts {
    State state;  // to which they lead
    uint64_t count;
  };
  std::vector<Texts> texts{{root, 1}}, longer;
  for (size_t length = 0; length < kLongest && texts.size() <= kMostStates; ++length) {
    uint64_t sum = 0;
    for (const auto& [state, count] : texts) {
      for_each_range(automaton_->row(state), [&, count = count](uint8_t first, uint8_t last, State to) {
        if (to == kDead) return;
        const uint64_t more = count * (last - first + 1u);
        sum += more;
        const auto known = std::ranges::find(longer, to, &Texts::state);
        if (known != longer.end()) {
          known->count += more;
        } else if (longer.size() <= kMostStates) {  // with one more, the search ends
          longer.push_back({to, more});
        }
      });
    }
    if (sum >= cap_) return true;
    texts.swap(longer), longer.clear();
  }
  return false;
}

void WordCounter::enter(State state) {
  counts_.emplace(state, kOnPath);
  spend(counts_.size(), budget_);
  path_.push_back({state, 0, add(0, automaton_->accepting(state) ? 1 : 0)});
}

void WordCounter::finish() {
  counts_[path_.back().state] = path_.back().words;
  path_.pop_back();
}

uint64_t count_words(Automaton& automaton, State state, uint64_t cap, size_t budget) {
  // The counter lives shorter than the automaton, and need not own it.
  return WordCounter(AutomatonPtr(&automaton, [](Automaton*) {}), cap, budget).count(state);
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
    const State target = automaton.row(frame.state)[static_cast<uint8_t>(byte)];
    if (target == kDead) continue;
    word.push_back(static_cast<char>(byte));
    enter(target);
  }
  return words;
}

}  // namespace constrain
