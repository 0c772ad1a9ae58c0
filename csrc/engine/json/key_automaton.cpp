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
  auto row = std::make_unique<StateRow>();
  const Position at = *positions_[from];
  std::vector<const StateRow*> rows;
  for (size_t i = 0; i < classes_.size(); ++i) {
    rows.push_back(at.classes[i] == kDead ? nullptr : &classes_[i]->row(at.classes[i]));
  }
  const auto class_after = [&](size_t i, int byte) { return rows[i] ? (*rows[i])[byte] : kDead; };
  const auto as_before = [&](int byte) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (class_after(i, byte) != class_after(i, byte - 1)) return false;
    }
    return true;
  };
  uint32_t low = at.low;
  while (low < at.high && names_[sorted_[low]].size() == at.length) ++low;  // a name that ends here comes first
  bool named = true;                                                        // so was the last byte
  for (int byte = 0; byte < 256; ++byte) {
    uint32_t high = low;
    while (high < at.high && static_cast<uint8_t>(names_[sorted_[high]][at.length]) == byte) ++high;
    const bool name = high > low;
    if (!name && !named && as_before(byte)) {
      (*row)[byte] = (*row)[byte - 1];
      continue;
    }
    Position to{name ? low : 0, name ? high : 0, name ? at.length + 1 : 0, {}};
    bool alive = name;
    for (size_t i = 0; i < rows.size(); ++i) {
      to.classes.push_back(class_after(i, byte));
      alive |= to.classes.back() != kDead;
    }
    (*row)[byte] = alive ? intern(std::move(to)) : kDead;
    named = name;
    low = high;
  }
  memory_.add(sizeof(StateRow));
  rows_[from] = std::move(row);
  return *rows_[from];
}

State KeyAutomaton::intern(Position position) {
  const auto [it, added] = ids_.try_emplace(std::move(position), static_cast<State>(states_.size()));
  if (!added) return it->second;
  const Position& at = it->first;
  positions_.push_back(&at);
  rows_.emplace_back();
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
