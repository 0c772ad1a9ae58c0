#include "engine/automata/word_bounds.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/lengths.h"

namespace constrain {

namespace {

/// A state is *roomy* if at least this many ASCII bytes of length 1 lead to roomy states, for as many steps as are
/// looked ahead: each step multiplies the number of words by 10.
constexpr uint64_t kManyBytes = 10;

/// Distance from the end within which words count as nearly complete.
constexpr uint64_t kNear = 16;

/// A small automaton as a weighted graph. States farther from the start mostly have higher numbers, so backward passes
/// run from the last state to the first.
class WordGraph {
 public:
  WordGraph(Automaton& words, size_t max_states, const std::function<uint64_t(uint8_t)>& length)
      : words_(words), length_(length) {
    if (words.start() != kDead) number(words.start());
    for (size_t at = 0; at < states_.size() && states_.size() <= max_states; ++at) {
      edges_.push_back(edges_of(states_[at]));
    }
  }

  size_t size() const { return states_.size(); }

  std::optional<WordBounds> bounds(uint64_t taken) const {
    std::vector<bool> ends, always(states_.size(), true);
    for (const State state : states_) ends.push_back(words_.accepting(state));
    const std::vector<uint64_t> to_end = distances(ends);
    while (shrink(always, always)) {
    }
    uint64_t near = 0;
    for (size_t at = 0; at < states_.size(); ++at) {
      if (always[at]) near = std::max(near, to_end[at]);
    }
    const auto tight = bounds_near(near, to_end, taken);
    if (near >= kNear) return tight;
    const auto wide = bounds_near(kNear, to_end, taken);
    return !tight || (wide && wide->rest < tight->rest) ? wide : tight;
  }

 private:
  struct Edge {
    size_t to;
    uint64_t length;     // of the cheapest byte
    uint64_t plain = 0;  // ASCII bytes of length 1
  };

  size_t number(State state) {
    const auto [it, added] = ids_.try_emplace(state, states_.size());
    if (added) states_.push_back(state);
    return it->second;
  }

  std::vector<Edge> edges_of(State state) {
    std::vector<Edge> edges;
    for_each_range(words_.row(state), [&](int first, int last, State target) {
      if (target == kDead) return;
      const size_t to = number(target);
      auto edge = std::ranges::find(edges, to, &Edge::to);
      if (edge == edges.end()) edge = edges.insert(edge, {to, kInfinite});
      for (int byte = first; byte <= last; ++byte) {
        const uint64_t length = length_(static_cast<uint8_t>(byte));
        edge->length = std::min(edge->length, length);
        edge->plain += byte < 0x80 && length == 1;
      }
    });
    return edges;
  }

  /// Computes the bounds for words that end within `near` bytes after the roomy part.
  std::optional<WordBounds> bounds_near(uint64_t near, const std::vector<uint64_t>& to_end, uint64_t taken) const {
    std::vector<bool> roomy, finite;
    for (const uint64_t distance : to_end) roomy.push_back(distance <= near);
    for (uint64_t words = 1; words <= taken; words *= kManyBytes, ++near) {
      std::vector<bool> before(states_.size(), true);
      shrink(before, roomy);
      roomy = std::move(before);
    }
    const std::vector<uint64_t> to_room = distances(roomy);
    uint64_t longest = 0;
    for (const uint64_t distance : to_room) {
      finite.push_back(distance == kInfinite);
      if (distance != kInfinite) longest = std::max(longest, distance + near);
    }
    const auto longest_word = this->longest_word(finite);
    if (!longest_word) return std::nullopt;
    return WordBounds{std::max(longest, *longest_word), !to_room.empty() && to_room.front() != kInfinite};
  }

  /// Removes states from which too few bytes lead to `next`; true if it removed any.
  bool shrink(std::vector<bool>& states, const std::vector<bool>& next) const {
    bool shrank = false;
    for (size_t at = states_.size(); at-- > 0;) {
      uint64_t bytes = 0;
      for (const Edge& edge : edges_[at]) bytes += next[edge.to] ? edge.plain : 0;
      if (!states[at] || bytes >= kManyBytes) continue;
      states[at] = false;
      shrank = true;
    }
    return shrank;
  }

  /// Distance of each state to the nearest target.
  std::vector<uint64_t> distances(const std::vector<bool>& targets) const {
    std::vector<uint64_t> distances(states_.size(), kInfinite);
    for (size_t at = 0; at < states_.size(); ++at) {
      if (targets[at]) distances[at] = 0;
    }
    for (bool shorter = true; shorter;) {
      shorter = false;
      for (size_t at = states_.size(); at-- > 0;) {
        for (const Edge& edge : edges_[at]) {
          const uint64_t distance = add_lengths(edge.length, distances[edge.to]);
          if (distance >= distances[at]) continue;
          distances[at] = distance;
          shorter = true;
        }
      }
    }
    return distances;
  }

  /// Length of the longest word within some states; none if words have no limit.
  std::optional<uint64_t> longest_word(const std::vector<bool>& among) const {
    std::vector<uint64_t> lengths(states_.size(), 0);
    bool longer = true;
    for (size_t round = 0; longer; ++round) {
      if (round > states_.size()) return std::nullopt;
      longer = false;
      for (size_t at = states_.size(); at-- > 0;) {
        if (!among[at]) continue;
        for (const Edge& edge : edges_[at]) {
          const uint64_t length = edge.length + lengths[edge.to];
          longer |= length > lengths[at];
          lengths[at] = std::max(lengths[at], length);
        }
      }
    }
    return lengths.empty() ? 0 : *std::ranges::max_element(lengths);
  }

  Automaton& words_;
  const std::function<uint64_t(uint8_t)>& length_;
  std::vector<State> states_;
  std::unordered_map<State, size_t> ids_;
  std::vector<std::vector<Edge>> edges_;
};

}  // namespace

std::optional<WordBounds> word_bounds(Automaton& words, uint64_t taken, size_t max_states,
                                      const std::function<uint64_t(uint8_t)>& length) {
  const WordGraph graph(words, max_states, length);
  return graph.size() > max_states ? std::nullopt : graph.bounds(taken);
}

}  // namespace constrain
