#include "engine/json/bounded_string_rule.h"

#include <algorithm>

#include "engine/automata/word_bounds.h"
#include "engine/base/errors.h"
#include "engine/grammar/parse_table.h"

namespace constrain::json {

void BoundedStringRule::prepare(const ParseTable& grammar, const Lengths&) { horizon_ = grammar.tokens().longest; }

template <class Visit>
void BoundedStringRule::for_each_edge(Local local, const Visit& visit) {
  const uint64_t escape = escape_of(local);
  const bool opening = local == start();
  const auto kind = [&](int byte) {
    if (escape != kNone || opening || byte == '"') return 0;
    if (byte == '\\') return 1;
    return byte >= 0x80 && byte <= 0xBF ? 2 : 3;
  };
  for_each_range(strings_->row(state_of(local)), [&](int begin, int end, State to) {
    if (to == kDead) return;
    for (int first = begin, last; first <= end; first = last + 1) {
      for (last = first; last < end && kind(last + 1) == kind(first);) ++last;
      uint64_t after = kNone;
      if (escape == kBackslash && first == 'u') after = kDigit1;
      if (escape >= kDigit1 && escape < kDigit4) after = escape + 1;
      if (kind(first) == 1) after = kBackslash;
      const bool counted = kind(first) == 1 || kind(first) == 3;
      visit(first, last, encode(to, after), counted);
    }
  });
}

/// Fewest characters up to the end, given that it is at least `bound`. A search by characters in which continuation
/// bytes are free; caches the result for all states on the path.
uint64_t BoundedStringRule::least(Local local, uint64_t bound) {
  if (const auto cached = least_.find(local); cached != least_.end()) return cached->second;
  struct Way {
    Local state, from;
    uint64_t characters;
  };
  std::unordered_map<Local, Way> ways;
  std::vector<Way> level{{local, local, 0}}, next;
  uint64_t best = kInfinite;
  Local last = local;
  for (uint64_t characters = 0; !level.empty() && characters < best && best > bound; ++characters) {
    next.clear();
    for (size_t i = 0; i < level.size() && best > bound; ++i) {
      const Way way = level[i];
      if (!ways.try_emplace(way.state, way).second) continue;
      if (ways.size() > kSearchBudget) {
        throw ResourceLimit("search_states", kSearchBudget, "while measuring the strings of a pattern");
      }
      const auto cached = least_.find(way.state);
      const bool ends = strings_->accepting(state_of(way.state));
      if (cached != least_.end() || ends) {
        const uint64_t sum = add_lengths(characters, ends ? 0 : cached->second);
        if (sum < best) best = sum, last = way.state;
        continue;
      }
      for_each_edge(way.state, [&](int, int, Local to, bool counted) {
        (counted ? next : level).push_back({to, way.state, characters + (counted ? 1 : 0)});
      });
    }
    level.swap(next);
  }
  if (best == kInfinite) return least_[local] = best;
  most_least_ = std::max(most_least_, best);
  for (Local at = last;; at = ways.at(at).from) {
    least_.try_emplace(at, best - ways.at(at).characters);
    if (at == local) return best;
  }
}

void BoundedStringRule::expand(Local local, const Lengths&, Expansion& out) {
  if (state_of(local) == kDead) return;
  const uint64_t from = least(local);
  for_each_edge(local, [&](int first, int last, Local to, bool counted) {
    const uint64_t needed = least(to, from - std::min<uint64_t>(from, counted ? 1 : 0));
    const bool checked = counted || needed > from;
    const Guard guard = kGuard | (counted ? kCounted : 0) | needed << kLeastShift;
    out.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last), to, checked ? guard : 0);
  });
  out.accepting = strings_->accepting(state_of(local));
}

bool BoundedStringRule::apply(Guard guard, uint8_t, Reg& reg, Registers& registers) const {
  const uint64_t needed = guard >> kLeastShift;
  const uint64_t after = reg + (guard & kCounted ? 1 : 0);
  if (needed > near_) registers.consult(this);
  if (after > max_ || needed > max_ - after) return false;
  reg = after;
  return true;
}

WildcardRegion BoundedStringRule::wildcard_region(Local local, Reg reg) {
  if (escape_of(local) != kNone || local == start()) return {};
  const State state = state_of(local);
  const RegionNeeds& needs = texts_.needs(state);
  WildcardRegion text = texts_.from(state);
  text.by_register = needs.most > near_;
  const uint64_t left = max_ - reg, limit = needs.limit(left);
  if (text.max_length <= limit) return text;
  text.max_length = limit;
  text.exact = limit == left;
  return text;
}

bool BoundedStringRule::describe(Local local, Reg reg, uint64_t, std::vector<uint64_t>& out) const {
  if (portable_id()) return outline(local, reg, out);
  out.push_back(max_ - reg);
  return true;
}

bool BoundedStringRule::outline(Local, Reg reg, std::vector<uint64_t>& out) const {
  out.push_back(std::min(max_ - reg, horizon_ + near_ + 1));
  return true;
}

uint64_t BoundedStringRule::remaining(Local local, Reg reg, const Lengths&) {
  if (state_of(local) == kDead) return kInfinite;
  const auto [shortest, fresh] = shortest_.try_emplace(local, 0);
  if (fresh) shortest->second = shortest_length(*strings_, state_of(local));
  // The shortest word in bytes fits, because it has at most as many characters.
  return shortest->second <= max_ - reg ? shortest->second : shortest_within(local, max_ - reg);
}

/// The register keeps enough characters for the shortest word, of at most 6 bytes each. A character and an escape may
/// be under way.
uint64_t BoundedStringRule::max_remaining(RuleBounds&) { return 6 * most_least_ + 12; }

/// If fewer characters are left than the bound, all strings are that short.
uint64_t BoundedStringRule::max_to_differ(RuleBounds&) {
  constexpr size_t kMaxStates = 1024;
  const auto words = word_bounds(*strings_, RuleBounds::kItems, kMaxStates, [](uint8_t) { return 1; });
  return words ? 6 * words->rest + 12 : kInfinite;
}

/// Fewest bytes to the end among strings of at most `room` more characters. Revisits states that were reached with
/// fewer characters.
uint64_t BoundedStringRule::shortest_within(Local local, uint64_t room) {
  std::unordered_map<Local, uint64_t> used{{local, 0}};
  std::vector<Local> level{local}, next;
  for (uint64_t bytes = 0; !level.empty(); ++bytes) {
    next.clear();
    for (const Local from : level) {
      if (strings_->accepting(state_of(from))) return bytes;
      const uint64_t so_far = used[from];
      for_each_edge(from, [&](int, int, Local to, bool counted) {
        const uint64_t after = so_far + (counted ? 1 : 0);
        if (add_lengths(after, least(to)) > room) return;
        const auto [entry, fresh] = used.try_emplace(to, after);
        if (!fresh && entry->second <= after) return;
        entry->second = after;
        next.push_back(to);
      });
    }
    if (used.size() > kSearchBudget) {
      throw ResourceLimit("search_states", kSearchBudget, "while measuring the strings of a pattern");
    }
    level.swap(next);
  }
  return kInfinite;
}

uint64_t BoundedStringRule::count_values(Local local, Reg reg, const ParseTable&) {
  return std::max<uint64_t>(1, count(local, std::min(max_ - reg, kCountedLength)));
}

/// Counts strings of at most `room` more characters; a lower bound if there are too many states.
uint64_t BoundedStringRule::count(Local local, uint64_t room) {
  if (const auto cached = counts_.find({local, room}); cached != counts_.end()) return cached->second;
  if (counts_.size() > kCountedStates) return 0;
  uint64_t sum = strings_->accepting(state_of(local)) ? 1 : 0;
  for_each_edge(local, [&](int first, int last, Local to, bool counted) {
    if (counted && room == 0) return;
    const uint64_t each = count(to, counted ? room - 1 : room), bytes = static_cast<uint64_t>(last - first + 1);
    sum = each >= (kManyValues - sum) / bytes ? kManyValues : sum + each * bytes;
  });
  return counts_[{local, room}] = sum;
}

}  // namespace constrain::json
