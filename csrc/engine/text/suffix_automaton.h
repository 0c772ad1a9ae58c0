// Which strings occur in a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/memory_account.h"

namespace constrain {

/// The smallest deterministic automaton of the substrings of a text (Blumer et al., "The smallest automaton recognizing
/// the subwords of a text", 1985): a state stands for strings that end at the same places. Immutable; made in time and
/// memory proportional to the text.
class SuffixAutomaton {
 public:
  using State = uint32_t;
  static constexpr State kRoot = 0, kNone = ~State{0};

  explicit SuffixAutomaton(const std::string& text);

  /// What the strings of a state become with one more byte; kNone where they do not occur so.
  State step(State state, uint8_t byte) const;

  /// Where the strings of a state end for the first time: the number of bytes before that place.
  uint32_t first_end(State state) const { return nodes_[state].first_end; }

  size_t states() const { return nodes_.size(); }

  /// Calls `use(byte, target)` for all that may follow a state.
  template <typename Use>
  void for_each_step(State state, Use use) const {
    for (uint32_t i = nodes_[state].edges; i != kNone; i = edges_[i].next) use(edges_[i].byte, edges_[i].target);
  }

 private:
  struct Node {
    uint32_t edges = kNone;  ///< the first one
    uint32_t first_end = 0;
    uint32_t length = 0;   ///< of the longest string
    State suffix = kNone;  ///< of its longest suffix in another state
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
  State whole_ = kRoot;  // of the text so far
};

}  // namespace constrain
