// Which cells have no instances, as far as a look at their required members and items shows it.
#include <algorithm>

#include "engine/leave.h"
#include "engine/schema/normalise.h"

namespace constrain::schema {

namespace {

constexpr int kEmpty = -1;

}  // namespace

void Normaliser::prune(Cells& cells, int depth) {
  std::erase_if(cells.strings, [](const StringCell& cell) { return cell.min > cell.max; });
  std::erase_if(cells.objects, [&](const ObjectCell& cell) { return empty(cell, depth); });
  std::erase_if(cells.arrays, [&](const ArrayCell& cell) { return empty(cell, depth); });
}

bool Normaliser::empty(ConjunctionId id, int depth) {
  if (id == 0 || depth == 0) return false;
  if (const auto it = inhabited_.find(id); it != inhabited_.end() && (it->second == kEmpty || it->second >= depth)) {
    return it->second == kEmpty;
  }
  if (!conjunctions_under_way_.insert(id).second) return false;
  const Leave leave{[&] { conjunctions_under_way_.erase(id), --speculating_; }};
  ++speculating_;
  try {
    Cells cells = conjunction(id);
    prune(cells, depth - 1);
    inhabited_[id] = cells.empty() ? kEmpty : depth;
    return cells.empty();
  } catch (const NotYet&) {
    return false;
  }
}

bool Normaliser::empty(const ObjectCell& cell, int depth) {
  if (cell.min > cell.max || cell.required.size() > cell.max) return true;
  return std::any_of(cell.required.begin(), cell.required.end(),
                     [&](const std::string& name) { return empty(value_of(cell, name, conjunctions_), depth); });
}

bool Normaliser::empty(const ArrayCell& cell, int depth) {
  if (cell.min > cell.max) return true;
  for (uint64_t i = 0; i < std::min<uint64_t>(cell.min, cell.prefix.size() + 1); ++i) {
    if (empty(i < cell.prefix.size() ? cell.prefix[i] : cell.rest, depth)) return true;
  }
  return false;
}

}  // namespace constrain::schema
