#include "engine/text/charset.h"

#include <algorithm>
#include <iterator>

namespace constrain {

CharSet::CharSet(std::initializer_list<Range> ranges) : CharSet(std::vector<Range>(ranges)) {}

CharSet::CharSet(std::vector<Range> ranges) {
  if (!std::ranges::is_sorted(ranges, {}, &Range::first)) std::ranges::sort(ranges, {}, &Range::first);
  ranges_.reserve(ranges.size());
  auto append = [&](char32_t first, char32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    append(range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1));
    append(std::max<char32_t>(range.first, kLastSurrogate + 1), range.last);
  }
}

CharSet CharSet::single(char32_t scalar) {
  CharSet set;
  if (scalar < kFirstSurrogate || scalar > kLastSurrogate) set.ranges_.push_back({scalar, scalar});
  return set;
}

const CharSet& CharSet::all() {
  static const CharSet set = {{0, kLastScalar}};
  return set;
}

bool CharSet::contains(char32_t scalar) const {
  const auto after = std::ranges::upper_bound(ranges_, scalar, {}, &Range::first);
  return after != ranges_.begin() && scalar <= std::prev(after)->last;
}

CharSet CharSet::operator~() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastScalar) gaps.push_back({next, kLastScalar});
  return CharSet(std::move(gaps));
}

CharSet CharSet::operator|(const CharSet& other) const {
  std::vector<Range> both;
  both.reserve(ranges_.size() + other.ranges_.size());
  std::ranges::merge(ranges_, other.ranges_, std::back_inserter(both), {}, &Range::first, &Range::first);
  return CharSet(std::move(both));
}

CharSet CharSet::operator&(const CharSet& other) const {
  std::vector<Range> common;
  for (auto a = ranges_.begin(), b = other.ranges_.begin(); a != ranges_.end() && b != other.ranges_.end();) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) common.push_back({first, last});
    a->last < b->last ? ++a : ++b;
  }
  return CharSet(std::move(common));
}

}  // namespace constrain
