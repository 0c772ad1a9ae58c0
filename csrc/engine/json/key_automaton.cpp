#include "engine/json/key_automaton.h"

#include <algorithm>
#include <numeric>

namespace constrain::json {

KeyAutomaton::KeyAutomaton(std::vector<std::string> names, std::vector<AutomatonPtr> classes)
    : names_(std::move(names)), sorted_(names_.size()), classes_(std::move(classes)) {
  for (const AutomatonPtr& one : classes_) words_.emplace_back(one, kManyWords);
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) { return names_[a] < names_[b]; });
  Position first{0, static_cast<uint32_t>(sorted_.size()), 0, {}};
  for (const AutomatonPtr& one : classes_) first.classes.push_back(one->start());
  intern(std::move(first));
}

const StateRow& KeyAutomaton::row(State from) {
  if (rows_[from]) return *rows_[from];
  const Position& at = *positions_[from];
  auto* row = arena_.allocate<StateRow>(1);
  if (at.low == at.high) {
    fill_nameless(at, *row);
  } else {
    // Names differ from what is no name in few bytes.
    *row = this->row(intern({0, 0, 0, at.classes}));
    add_names(at, *row);
  }
  memory_.add(sizeof(StateRow));
  rows_[from] = row;
  return *row;
}

/// The transitions of each class; null where it has none.
std::vector<const StateRow*> KeyAutomaton::class_rows(const Position& at) {
  std::vector<const StateRow*> rows;
  for (size_t i = 0; i < classes_.size(); ++i) {
    rows.push_back(at.classes[i] == kDead ? nullptr : &classes_[i]->row(at.classes[i]));
  }
  return rows;
}

void KeyAutomaton::fill_nameless(const Position& at, StateRow& row) {
  const std::vector<const StateRow*> classes = class_rows(at);
  const auto as_before = [&](int byte) {
    return std::ranges::all_of(classes, [&](const StateRow* one) { return !one || (*one)[byte] == (*one)[byte - 1]; });
  };
  for (int byte = 0; byte < 256; ++byte) {
    row[byte] = byte > 0 && as_before(byte) ? row[byte - 1] : enter(at, classes, byte, 0, 0);
  }
}

void KeyAutomaton::add_names(const Position& at, StateRow& row) {
  const std::vector<const StateRow*> classes = class_rows(at);
  uint32_t low = at.low;
  while (low < at.high && names_[sorted_[low]].size() == at.length) ++low;  // a name that ends here comes first
  while (low < at.high) {
    const auto next = [&](uint32_t name) { return static_cast<uint8_t>(names_[sorted_[name]][at.length]); };
    uint32_t high = low;
    while (high < at.high && next(high) == next(low)) ++high;
    row[next(low)] = enter(at, classes, next(low), low, high);
    low = high;
  }
}

/// The state after a byte with which the names from `low` to before `high` go on.
State KeyAutomaton::enter(const Position& at, std::span<const StateRow* const> classes, int byte, uint32_t low,
                          uint32_t high) {
  Position to{low, high, high > low ? at.length + 1 : 0, {}};
  to.classes.reserve(classes.size());
  bool alive = high > low;
  for (const StateRow* one : classes) {
    to.classes.push_back(one ? (*one)[byte] : kDead);
    alive |= to.classes.back() != kDead;
  }
  return alive ? intern(std::move(to)) : kDead;
}

State KeyAutomaton::intern(Position position) {
  const auto [it, added] = ids_.try_emplace(std::move(position), static_cast<State>(states_.size()));
  if (!added) return it->second;
  const Position& at = it->first;
  positions_.push_back(&at);
  rows_.push_back(nullptr);
  KeyState& made = states_.grow();
  made.length = at.length;
  made.low = at.low, made.high = at.high;
  for (uint32_t i = at.low; i < at.high; ++i) {
    if (names_[sorted_[i]].size() == at.length) made.name = sorted_[i];
  }
  for (uint32_t i = 0; i < classes_.size(); ++i) {
    const State state = at.classes[i];
    if (state == kDead) continue;
    made.classes.push_back(i);
    if (classes_[i]->accepting(state) && !made.name) made.key_class = i;
    made.other_words = std::min(kManyWords, made.other_words + class_words(i, state));
  }
  return it->second;
}

}  // namespace constrain::json
