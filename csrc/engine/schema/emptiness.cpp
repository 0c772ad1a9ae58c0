// Detection of empty cells by their required members and items.
#include <algorithm>

#include "engine/base/deadline.h"
#include "engine/base/leave.h"
#include "engine/schema/normalise.h"

namespace constrain::schema {

namespace {

constexpr int kEmpty = -1;

}  // namespace

ConjunctionId Normaliser::prune(Cells& cells, int depth) {
  ConjunctionId reason = 0;
  const auto drop = [&](auto& list) {
    std::erase_if(list, [&](const auto& cell) {
      const auto found = contradiction(cell, depth);
      if (found) reason = *found;
      return found.has_value();
    });
  };
  drop(cells.strings);
  drop(cells.objects);
  drop(cells.arrays);
  return reason;
}

bool Normaliser::empty(ConjunctionId id, int depth) {
  if (id == 0 || depth == 0) return false;
  if (const auto it = inhabited_.find(id); it != inhabited_.end() && (it->second == kEmpty || it->second >= depth)) {
    return it->second == kEmpty;
  }
  Deadline::check();
  if (std::ranges::find(conjunctions_under_way_, id) != conjunctions_under_way_.end()) return false;
  conjunctions_under_way_.push_back(id);
  const Leave leave{[&] { conjunctions_under_way_.pop_back(), --speculating_; }};
  ++speculating_;
  try {
    const bool empty = !has_values(conjunction(id), depth - 1);
    inhabited_[id] = empty ? kEmpty : depth;
    return empty;
  } catch (const NotYet&) {
    return false;
  }
}

bool Normaliser::has_values(const Cells& cells, int depth) {
  bool found = cells.null || cells.booleans[0] || cells.booleans[1] || !cells.numbers.empty();
  const auto look = [&](const auto& list) {
    for (const auto& cell : list) found |= !contradiction(cell, depth);
  };
  look(cells.strings);
  look(cells.objects);
  look(cells.arrays);
  return found;
}

std::optional<ConjunctionId> Normaliser::contradiction(const StringCell& cell, int) {
  return cell.min > cell.max ? std::optional<ConjunctionId>(0) : std::nullopt;
}

std::optional<ConjunctionId> Normaliser::contradiction(const ObjectCell& cell, int depth) {
  if (cell.min > cell.max || cell.required.size() > cell.max) return 0;
  for (const ConjunctionId value : needed(cell, conjunctions_)) {
    if (empty(value, depth)) return value;
  }
  return std::nullopt;
}

std::optional<ConjunctionId> Normaliser::contradiction(const ArrayCell& cell, int depth) {
  if (cell.min > cell.max) return 0;
  for (const ConjunctionId item : needed(cell)) {
    if (empty(item, depth)) return item;
  }
  return std::nullopt;
}

}  // namespace constrain::schema
