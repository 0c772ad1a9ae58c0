#include "engine/json/object/key_automaton.h"

#include <algorithm>
#include <numeric>

namespace constrain::json {

KeyAutomaton::KeyAutomaton(const std::vector<std::string>& names, std::vector<KeyLanguagePtr> classes)
    : sorted_(names.size()), classes_(std::move(classes)) {
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) { return names[a] < names[b]; });
  for (const uint32_t name : sorted_) words_.add(names[name]);
  position_ = {0, static_cast<uint32_t>(sorted_.size()), 0};
  for (const KeyLanguagePtr& one : classes_) position_.push_back(one->automaton().start());
  intern();
}

const StateRow& KeyAutomaton::row(State from) {
  if (rows_[from]) return *rows_[from];
  Transitions row;
  if (states_[from].low == states_[from].high) {
    fill_nameless(from, row);
  } else {
    if (const State base = nameless(from); base != kDead) {
      for_each_range(this->row(base), [&](uint8_t first, uint8_t last, State to) { row.set(first, last, to); });
    }
    for_each_name(from, [&](uint8_t byte, State to) { row.set(byte, to); });
  }
  return *(rows_[from] = StateRow::make(row, arena_, memory_));
}

State KeyAutomaton::nameless(State from) {
  const KeyState& at = states_[from];
  if (at.low == at.high || at.classes.empty()) return kDead;
  const auto same = positions_[from];
  position_.assign(same.begin(), same.end());
  std::fill_n(position_.begin(), kClasses, 0);
  return intern();
}

/// Rows of each class's automaton; null if it has none.
std::vector<const StateRow*> KeyAutomaton::class_rows(State from) {
  std::vector<const StateRow*> rows;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const State state = class_state(from, i);
    rows.push_back(state == kDead ? nullptr : &classes_[i]->automaton().row(state));
  }
  return rows;
}

void KeyAutomaton::fill_nameless(State from, Transitions& row) {
  for_each_common_range(class_rows(from), [&](uint8_t first, uint8_t last, std::span<const State> classes) {
    row.set(first, last, enter(0, 0, 0, classes));
  });
}

/// State of the names in [low, high) with `length` bytes read, and of one state of each class.
State KeyAutomaton::enter(uint32_t low, uint32_t high, uint32_t length, std::span<const State> classes) {
  position_ = {low, high, length};
  position_.insert(position_.end(), classes.begin(), classes.end());
  const bool alive = high > low || std::ranges::any_of(classes, [](State at) { return at != kDead; });
  return alive ? intern() : kDead;
}

/// State of `position_`.
State KeyAutomaton::intern() {
  const State state = positions_.intern(position_);
  if (state < states_.size()) return state;
  rows_.push_back(nullptr);
  KeyState& made = states_.grow();
  made.low = position_[kLow], made.high = position_[kHigh], made.length = position_[kLength];
  // Of the names with a prefix, the prefix itself comes first.
  if (made.low < made.high && words_.length(made.low) == made.length) made.name = sorted_[made.low];
  for (uint32_t i = 0; i < classes_.size(); ++i) {
    const State at = position_[kClasses + i];
    if (at == kDead) continue;
    made.classes.push_back(i);
    if (classes_[i]->automaton().accepting(at) && !made.name) made.key_class = i;
    made.words.push_back(class_words(i, at));
    made.other_words = std::min(kManyWords, made.other_words + made.words.back());
  }
  return state;
}

}  // namespace constrain::json
