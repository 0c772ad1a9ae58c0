#include "engine/json/object/cheapest_words.h"

#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/base/lengths.h"

namespace constrain::json {

namespace {

constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";

constexpr uint64_t escaped_length(uint8_t byte) {
  if (byte == '"' || byte == '\\') return 2;
  if (byte >= 0x20) return 1;
  return kShort.find(static_cast<char>(byte)) != std::string_view::npos ? 2 : 6;
}

/// Shortest spelling of a byte; the first in byte order if there are several.
std::string escaped(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  switch (escaped_length(byte)) {
    case 1:
      return {static_cast<char>(byte)};
    case 2:
      return {'\\', kLetters[kShort.find(static_cast<char>(byte))]};
    default:
      return {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 0xF]};
  }
}

}  // namespace

uint64_t escaped_length(std::string_view text) {
  uint64_t length = 0;
  for (const char c : text) length += escaped_length(static_cast<uint8_t>(c));
  return length;
}

const std::vector<std::string>& CheapestWords::from(State start, size_t count) {
  auto& [asked, words] = cache_[start];
  if (asked >= count || words.size() < asked) return words;
  asked = count;
  words.clear();
  // Priority queue entries, ordered by the length of the shortest word through them, so that the search goes straight
  // to the words.
  using Entry = std::tuple<uint64_t, std::string, std::string, State>;  // total length, spelling so far, word so far
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::map<uint64_t, size_t> queued;  // entries by total length
  const auto shorter = [&](uint64_t whole) {
    size_t entries = 0;
    for (auto at = queued.begin(); at != queued.end() && at->first < whole; ++at) entries += at->second;
    return entries;
  };
  const auto add = [&](uint64_t whole, std::string text, std::string word, State state) {
    queue.emplace(whole, std::move(text), std::move(word), state);
    ++queued[whole];
  };
  if (start != kDead) add(to_end(start), "", "", start);
  while (!queue.empty() && words.size() < count) {
    Deadline::check();
    const auto [whole, text, word, state] = queue.top();
    queue.pop();
    if (--queued[whole] == 0) queued.erase(whole);
    if (automaton_->accepting(state)) words.push_back(word);
    // Every entry has a word of its total length: an entry behind as many shorter ones as words are wanted is not
    // needed. Of bytes of one length that lead to one state, later ones cannot begin an earlier word: a few of them are
    // enough.
    for_each_range(automaton_->row(state), [&](int first, int last, State to) {
      const size_t wanted = count - words.size();
      size_t left = wanted;
      for (int byte = first; byte <= last && to != kDead; ++byte) {
        const uint64_t length = escaped_length(static_cast<uint8_t>(byte));
        if (length == 1 && left-- == 0) break;
        const uint64_t longer = text.size() + length + to_end(to);
        if (shorter(longer) >= wanted) continue;
        add(longer, text + escaped(static_cast<uint8_t>(byte)), word + static_cast<char>(byte), to);
      }
    });
  }
  return words;
}

/// Dijkstra's algorithm. Stops at states whose distance is cached, and caches those of the states on the path, so that
/// one search serves all states of a long word.
uint64_t CheapestWords::to_end(State state) {
  if (const auto known = known_to_end(state)) return *known;
  struct Seen {
    uint64_t length;
    State previous;
  };
  std::unordered_map<State, Seen> seen{{state, {0, kDead}}};
  using Entry = std::pair<uint64_t, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  queue.emplace(0, state);
  uint64_t least = kInfinite;
  State last = kDead;
  while (!queue.empty() && queue.top().first < least) {
    const auto [length, at] = queue.top();
    queue.pop();
    if (length > seen.at(at).length) continue;
    Deadline::check();
    if (const auto known = known_to_end(at)) {
      if (length + *known < least) least = length + *known, last = at;
      continue;
    }
    if (seen.size() > kSearchBudget) {
      throw ResourceLimit("search_states", kSearchBudget, "while looking for a short key");
    }
    for_each_range(automaton_->row(at), [&, length = length, at = at](int first, int end, State to) {
      if (to == kDead) return;
      uint64_t cheapest = escaped_length(static_cast<uint8_t>(first));
      for (int byte = first; byte <= end && cheapest > 1; ++byte)
        cheapest = std::min(cheapest, escaped_length(static_cast<uint8_t>(byte)));
      const auto [it, added] = seen.try_emplace(to, Seen{length + cheapest, at});
      if (!added && it->second.length <= length + cheapest) return;
      it->second = {length + cheapest, at};
      queue.emplace(length + cheapest, to);
    });
  }
  for (State on = last; on != kDead; on = seen.at(on).previous) to_end_[on] = least - seen.at(on).length;
  return least;
}

std::optional<uint64_t> CheapestWords::known_to_end(State state) const {
  if (automaton_->accepting(state)) return 0;
  const auto known = to_end_.find(state);
  return known == to_end_.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace constrain::json
