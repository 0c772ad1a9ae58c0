#include "engine/json/key_automaton.h"

#include <algorithm>
#include <numeric>

namespace constrain::json {

KeyAutomaton::KeyAutomaton(std::vector<std::string> names, std::vector<AutomatonPtr> classes)
    : names_(std::move(names)), sorted_(names_.size()), classes_(std::move(classes)) {
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) { return names_[a] < names_[b]; });
  Position first{0, static_cast<uint32_t>(sorted_.size()), 0, {}};
  for (const AutomatonPtr& one : classes_) first.classes.push_back(one->start());
  intern(std::move(first));
}

State KeyAutomaton::step(State from, uint8_t byte) {
  auto& row = rows_[from];
  if (!row) {
    row = std::make_unique<StateRow>();
    row->fill(kDead - 1);  // not yet known
  }
  if ((*row)[byte] != kDead - 1) return (*row)[byte];

  const Position& at = *positions_[from];
  const auto next_byte = [&](uint32_t name) {
    const std::string& text = names_[name];
    return at.length < text.size() ? static_cast<uint8_t>(text[at.length]) : -1;
  };
  const auto begin = sorted_.begin() + at.low, end = sorted_.begin() + at.high;
  const auto low = std::lower_bound(begin, end, int{byte}, [&](uint32_t name, int b) { return next_byte(name) < b; });
  const auto high = std::upper_bound(low, end, int{byte}, [&](int b, uint32_t name) { return b < next_byte(name); });

  Position to{
      static_cast<uint32_t>(low - sorted_.begin()), static_cast<uint32_t>(high - sorted_.begin()), at.length + 1, {}};
  if (to.low == to.high) to.low = to.high = to.length = 0;
  bool alive = to.low < to.high;
  for (size_t i = 0; i < classes_.size(); ++i) {
    to.classes.push_back(classes_[i]->step(at.classes[i], byte));
    alive |= to.classes.back() != kDead;
  }
  const State target = alive ? intern(std::move(to)) : kDead;
  return (*rows_[from])[byte] = target;
}

State KeyAutomaton::intern(Position position) {
  const auto [it, added] = ids_.try_emplace(std::move(position), static_cast<State>(states_.size()));
  if (!added) return it->second;
  const Position& at = it->first;
  positions_.push_back(&at);
  rows_.emplace_back();
  KeyState& made = states_.grow();
  made.length = at.length;
  made.names.assign(sorted_.begin() + at.low, sorted_.begin() + at.high);
  for (const uint32_t name : made.names) {
    if (names_[name].size() == at.length) made.name = name;
  }
  std::sort(made.names.begin(), made.names.end());
  for (uint32_t i = 0; i < classes_.size(); ++i) {
    const State state = at.classes[i];
    if (state == kDead) continue;
    made.classes.push_back(i);
    if (classes_[i]->accepting(state) && !made.name) made.key_class = i;
    made.other_words = std::min(kManyWords, made.other_words + count_words(*classes_[i], state, kManyWords));
  }
  return it->second;
}

}  // namespace constrain::json
