#include "engine/json/key_automaton.h"

#include <algorithm>
#include <numeric>

namespace constrain::json {

KeyAutomaton::KeyAutomaton(std::vector<std::string> names, std::vector<AutomatonPtr> classes)
    : names_(std::move(names)), sorted_(names_.size()), classes_(std::move(classes)) {
  for (const AutomatonPtr& one : classes_) words_.emplace_back(one, kManyWords);
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) { return names_[a] < names_[b]; });
  position_ = {0, static_cast<uint32_t>(sorted_.size()), 0};
  for (const AutomatonPtr& one : classes_) position_.push_back(one->start());
  intern();
}

const StateRow& KeyAutomaton::row(State from) {
  if (rows_[from]) return *rows_[from];
  const KeyState& at = states_[from];
  auto* row = arena_.allocate<StateRow>(1);
  if (at.low == at.high) {
    fill_nameless(class_rows(from), *row);
  } else {
    // Names differ from what is no name in few bytes.
    const auto same = positions_[from];
    position_.assign(same.begin(), same.end());
    std::fill_n(position_.begin(), kClasses, 0);
    *row = this->row(intern());
    add_names(at, class_rows(from), *row);
  }
  memory_.add(sizeof(StateRow));
  rows_[from] = row;
  return *row;
}

/// The transitions of each class; null where it has none.
std::vector<const StateRow*> KeyAutomaton::class_rows(State from) {
  std::vector<const StateRow*> rows;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const State state = class_state(from, i);
    rows.push_back(state == kDead ? nullptr : &classes_[i]->row(state));
  }
  return rows;
}

void KeyAutomaton::fill_nameless(const std::vector<const StateRow*>& classes, StateRow& row) {
  ByteSet starts;  // of ranges that lead the same way
  for (const StateRow* one : classes) {
    if (one) for_each_range(*one, [&](uint8_t first, uint8_t, State) { starts.add(first); });
  }
  row.fill(kDead);
  for (int byte = starts.next(0), end; byte >= 0; byte = end) {
    end = starts.next(byte + 1);
    std::fill(row.begin() + byte, end < 0 ? row.end() : row.begin() + end, enter(0, 0, 0, classes, byte));
  }
}

void KeyAutomaton::add_names(const KeyState& at, const std::vector<const StateRow*>& classes, StateRow& row) {
  uint32_t low = at.low;
  while (low < at.high && names_[sorted_[low]].size() == at.length) ++low;  // a name that ends here comes first
  while (low < at.high) {
    const auto next = [&](uint32_t name) { return static_cast<uint8_t>(names_[sorted_[name]][at.length]); };
    uint32_t high = low;
    while (high < at.high && next(high) == next(low)) ++high;
    row[next(low)] = enter(low, high, at.length + 1, classes, next(low));
    low = high;
  }
}

/// The state after a byte with which the names from `low` to before `high` go on, and so do the classes.
State KeyAutomaton::enter(uint32_t low, uint32_t high, uint32_t length, const std::vector<const StateRow*>& classes,
                          int byte) {
  position_ = {low, high, length};
  bool alive = high > low;
  for (const StateRow* one : classes) {
    position_.push_back(one ? (*one)[byte] : kDead);
    alive |= position_.back() != kDead;
  }
  return alive ? intern() : kDead;
}

/// The state of `position_`.
State KeyAutomaton::intern() {
  const State state = positions_.intern(position_);
  if (state < states_.size()) return state;
  rows_.push_back(nullptr);
  KeyState& made = states_.grow();
  made.low = position_[kLow], made.high = position_[kHigh], made.length = position_[kLength];
  for (uint32_t i = made.low; i < made.high; ++i) {
    if (names_[sorted_[i]].size() == made.length) made.name = sorted_[i];
  }
  for (uint32_t i = 0; i < classes_.size(); ++i) {
    const State at = position_[kClasses + i];
    if (at == kDead) continue;
    made.classes.push_back(i);
    if (classes_[i]->accepting(at) && !made.name) made.key_class = i;
    made.other_words = std::min(kManyWords, made.other_words + class_words(i, at));
  }
  return state;
}

}  // namespace constrain::json
