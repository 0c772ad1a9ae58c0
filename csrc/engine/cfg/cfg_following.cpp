// First and following sets, by bytes.
#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

namespace {

/// Adds to a set; true if it grew.
bool grow(ByteSet& set, const ByteSet& more) {
  const ByteSet before = set;
  set.add(more);
  return set != before;
}

ByteSet first_of(const Body::State& state, const std::vector<ByteSet>& first) {
  ByteSet bytes;
  for (const Edge& edge : state.edges) bytes.add(first[edge.symbol]);
  return bytes;
}

}  // namespace

std::vector<ByteSet> first_bytes(const Bodies& bodies, std::vector<ByteSet> first) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Symbol symbol = 0; symbol < bodies.size(); ++symbol) {
      if (!bodies[symbol].states.empty()) changed |= grow(first[symbol], first_of(bodies[symbol].states[0], first));
    }
  }
  return first;
}

std::vector<ByteSet> following_bytes(const Bodies& bodies, const std::vector<Symbol>& roots,
                                     const std::vector<ByteSet>& first) {
  std::vector<ByteSet> following(bodies.size());
  std::vector<bool> reached(bodies.size(), false), last(bodies.size(), false);
  for (const Symbol root : roots) reached[root] = last[root] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (Symbol symbol = 0; symbol < bodies.size(); ++symbol) {
      if (!reached[symbol]) continue;
      for (const Body::State& state : bodies[symbol].states) {
        for (const Edge& edge : state.edges) {
          if (last[edge.symbol]) continue;
          const Body::State& after = bodies[symbol].states[edge.target];
          ByteSet next = first_of(after, first);
          if (after.accepting) next.add(following[symbol]);
          changed |= grow(following[edge.symbol], next) || !reached[edge.symbol];
          reached[edge.symbol] = true;
        }
      }
    }
  }
  return following;
}

}  // namespace constrain::cfg
