#include "engine/text/suffix_automaton.h"

namespace constrain {

SuffixAutomaton::SuffixAutomaton(const std::string& text) {
  // Blumer et al.: fewer than two states and three edges for each byte.
  memory_.add(text.size() * (2 * sizeof(Node) + 3 * sizeof(Edge)));
  nodes_.emplace_back();
  for (const char byte : text) append(static_cast<uint8_t>(byte));
  nodes_.shrink_to_fit();
  edges_.shrink_to_fit();
}

SuffixAutomaton::State SuffixAutomaton::step(State state, uint8_t byte) const {
  const uint32_t edge = find_edge(state, byte);
  return edge == kNone ? kNone : edges_[edge].target;
}

void SuffixAutomaton::append(uint8_t byte) {
  const uint32_t length = nodes_[whole_].length + 1;
  const State longer = add_node(length, length);
  State at = whole_;
  uint32_t edge = kNone;
  for (; at != kNone && (edge = find_edge(at, byte)) == kNone; at = nodes_[at].suffix) add_edge(at, byte, longer);
  if (at == kNone) {
    nodes_[longer].suffix = kRoot;
  } else {
    const State target = edges_[edge].target;
    const bool only_suffixes = nodes_[target].length == nodes_[at].length + 1;
    nodes_[longer].suffix = only_suffixes ? target : split(at, target, byte);
  }
  whole_ = longer;
}

/// Splits `target`: its strings that are suffixes of the text so far end at one more place.
SuffixAutomaton::State SuffixAutomaton::split(State from, State target, uint8_t byte) {
  const State shorter = add_node(nodes_[from].length + 1, nodes_[target].first_end);
  nodes_[shorter].suffix = nodes_[target].suffix;
  for (uint32_t i = nodes_[target].edges; i != kNone; i = edges_[i].next) {
    add_edge(shorter, edges_[i].byte, edges_[i].target);
  }
  nodes_[target].suffix = shorter;
  for (State at = from; at != kNone; at = nodes_[at].suffix) {
    const uint32_t edge = find_edge(at, byte);
    if (edges_[edge].target != target) break;
    edges_[edge].target = shorter;
  }
  return shorter;
}

void SuffixAutomaton::add_edge(State from, uint8_t byte, State target) {
  edges_.push_back({nodes_[from].edges, target, byte});
  nodes_[from].edges = static_cast<uint32_t>(edges_.size() - 1);
}

uint32_t SuffixAutomaton::find_edge(State from, uint8_t byte) const {
  uint32_t edge = nodes_[from].edges;
  while (edge != kNone && edges_[edge].byte != byte) edge = edges_[edge].next;
  return edge;
}

SuffixAutomaton::State SuffixAutomaton::add_node(uint32_t length, uint32_t first_end) {
  nodes_.push_back({.first_end = first_end, .length = length});
  return static_cast<State>(nodes_.size() - 1);
}

}  // namespace constrain
