#include "engine/json/item_plan.h"

#include <algorithm>
#include <functional>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"

namespace constrain::json {

namespace {

/// Memory of a cached answer besides its key.
constexpr size_t kEntryBytes = 80;

}  // namespace

ItemPlan::ItemPlan(const ArraySpec& spec, const Lengths& lengths, uint64_t comma) : spec_(spec), comma_(comma) {
  uint32_t bounded = 0;
  horizon_ += spec.prefix.size();
  for (size_t i = 0; i < spec.tallies.size(); ++i) {
    const auto& tally = spec.tallies[i];
    if (tally.max != kInfinite) bounded |= 1u << i;
    const uint64_t items = tally.max != kInfinite ? tally.max : tally.min;
    if (items > kMaxItems) throw ResourceLimit("counted_items", kMaxItems, "of one array (contains)");
    horizon_ += items;
  }
  has_maximum_ = bounded != 0;
  for (uint64_t index = 0; index <= spec.prefix.size(); ++index) {
    auto& list = choices_.emplace_back();
    for (const auto& choice : spec.choices(index)) {
      if (lengths[choice.value] != kInfinite) list.emplace_back(choice.tallies, lengths[choice.value]);
    }
  }
  for (const auto& [tallies, length] : choices_.back()) {
    if (!(tallies & bounded)) neutral_ = std::min(neutral_, length);
  }
}

bool ItemPlan::add(uint32_t choice, std::vector<uint64_t>& tallies) const {
  for (size_t i = 0; i < tallies.size(); ++i) {
    if (!(choice >> i & 1)) continue;
    const auto& tally = spec_.tallies[i];
    if (tallies[i] == tally.max) return false;
    // Without a maximum, counting beyond the minimum would multiply states.
    if (tally.max != kInfinite || tallies[i] < tally.min) ++tallies[i];
  }
  return true;
}

uint64_t ItemPlan::length(uint64_t count, const std::vector<uint64_t>& tallies, uint64_t more) const {
  const std::lock_guard lock(mutex_);
  const uint64_t index = std::min<uint64_t>(count, spec_.prefix.size());
  const uint64_t low = std::max(more, spec_.min - std::min(spec_.min, count));
  if (count > spec_.max) return kInfinite;
  const uint64_t high = spec_.max == kInfinite ? kInfinite : spec_.max - count;
  if (has_maximum_ || high < std::max(low, horizon_)) return bounded(index, tallies, low, high);
  const uint64_t beyond = low - std::min(low, horizon_);
  const uint64_t within = at_least(index, tallies, low - beyond);
  return beyond == 0 ? within : add_lengths(within, multiply_lengths(beyond, add_lengths(neutral_, comma_)));
}

bool ItemPlan::met(const std::vector<uint64_t>& tallies) const {
  return std::ranges::equal(tallies, spec_.tallies, std::greater_equal<>(), {}, &ArraySpec::Tally::min);
}

/// Without regard to maxima. An item that adds to no tally comes only if there are too few, or in the prefix.
uint64_t ItemPlan::at_least(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t items) const {
  if (items == 0 && met(tallies)) return 0;
  std::vector<uint64_t> key{index, items};
  key.insert(key.end(), tallies.begin(), tallies.end());
  if (const auto it = at_least_.find(key); it != at_least_.end()) return it->second;
  Deadline::check();
  memory_.add(kEntryBytes + key.size() * sizeof(uint64_t));
  const uint64_t next = std::min<uint64_t>(index + 1, spec_.prefix.size()), left = items - std::min<uint64_t>(items, 1);
  uint64_t best = kInfinite;
  for (const auto& [choice, length] : choices_[index]) {
    std::vector<uint64_t> after = tallies;
    add(choice, after);
    if (next == index && left == items && after == tallies) continue;
    best = std::min(best, add_lengths(length + comma_, at_least(next, after, left)));
  }
  return at_least_[key] = best;
}

/// Between `low` and `high` items.
uint64_t ItemPlan::bounded(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t low, uint64_t high) const {
  uint64_t best = kInfinite;
  for (uint64_t items = low; items <= std::min(high, horizon_); ++items) {
    best = std::min(best, add_lengths(exactly(index, tallies, items), items * comma_));
  }
  const uint64_t beyond = std::max(low, horizon_ + 1);
  if (best != kInfinite || beyond > high || neutral_ == kInfinite) return best;
  const uint64_t within = exactly(index, tallies, horizon_);
  return within == kInfinite ? kInfinite : add_lengths(within, (beyond - horizon_) * neutral_ + beyond * comma_);
}

uint64_t ItemPlan::exactly(uint64_t index, const std::vector<uint64_t>& tallies, uint64_t items) const {
  if (items == 0) return met(tallies) ? 0 : kInfinite;
  std::vector<uint64_t> key{index, items};
  key.insert(key.end(), tallies.begin(), tallies.end());
  if (const auto it = exactly_.find(key); it != exactly_.end()) return it->second;
  Deadline::check();
  memory_.add(kEntryBytes + key.size() * sizeof(uint64_t));
  uint64_t best = kInfinite;
  for (const auto& [choice, length] : choices_[index]) {
    std::vector<uint64_t> after = tallies;
    if (!add(choice, after)) continue;
    const uint64_t next = std::min<uint64_t>(index + 1, spec_.prefix.size());
    best = std::min(best, add_lengths(length, exactly(next, after, items - 1)));
  }
  return exactly_[key] = best;
}

}  // namespace constrain::json
