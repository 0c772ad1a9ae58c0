// Suffix automata: the substrings of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/memory_account.h"

namespace constrain {

/// The smallest deterministic automaton of the substrings of a text (Blumer et al., "The smallest automaton recognizing
/// the subwords of a text", 1985). A state is a set of strings that end at the same places. Immutable; built in time
/// and memory proportional to the text.
class SuffixAutomaton {
 public:
  using State = uint32_t;
  static constexpr State kRoot = 0, kNone = ~State{0};

  explicit SuffixAutomaton(const std::string& text);

  /// Extends the strings of a state by one byte; kNone if they do not occur.
  State step(State state, uint8_t byte) const;

  /// Number of bytes before the first place where the strings of a state end.
  uint32_t first_end(State state) const { return nodes_[state].first_end; }

  size_t states() const { return nodes_.size(); }

  /// Calls `use(byte, target)` for all transitions of a state.
  template <typename Use>
  void for_each_step(State state, Use use) const {
    for (uint32_t i = nodes_[state].edges; i != kNone; i = edges_[i].next) use(edges_[i].byte, edges_[i].target);
  }

 private:
  struct Node {
    uint32_t edges = kNone;  ///< first edge
    uint32_t first_end = 0;
    uint32_t length = 0;   ///< length of the longest string
    State suffix = kNone;  ///< state of the longest suffix that is in another state
  };
  struct Edge {
    uint32_t next;
    State target;
    uint8_t byte;
  };

  void append(uint8_t byte);
  State split(State from, State target, uint8_t byte);
  void add_edge(State from, uint8_t byte, State target);
  uint32_t find_edge(State from, uint8_t byte) const;
  State add_node(uint32_t length, uint32_t first_end);

  MemoryShare memory_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  State whole_ = kRoot;  // state of the whole text so far
};

}  // namespace constrain
