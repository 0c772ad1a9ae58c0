// Bodies of context-free rules as automata over grammar symbols.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace constrain::cfg {

/// A terminal or a nonterminal, numbered by the grammar under construction.
using Symbol = uint32_t;

struct Edge {
  Symbol symbol;
  uint32_t target;
};

/// A deterministic automaton over symbols. State 0 is the start and is never re-entered; every state is on some path to
/// an accepting one, unless the body has no word.
struct Body {
  struct State {
    std::vector<Edge> edges;
    bool accepting = false;
  };
  std::vector<State> states;
};

/// A nondeterministic automaton over symbols under construction.
class Net {
 public:
  using Node = uint32_t;

  Node node() {
    nodes_.emplace_back();
    return static_cast<Node>(nodes_.size() - 1);
  }
  size_t size() const { return nodes_.size(); }

  void edge(Node from, Symbol symbol, Node to) { nodes_[from].edges.push_back({symbol, to}); }
  void jump(Node from, Node to) { nodes_[from].jumps.push_back(to); }

  const std::vector<Edge>& edges(Node node) const { return nodes_[node].edges; }
  const std::vector<Node>& jumps(Node node) const { return nodes_[node].jumps; }

  /// Determinises the paths from `start` to `end`; none if that takes more than `limit` states.
  std::optional<Body> determinise(Node start, Node end, size_t limit) const;

  /// Determinises under a limit that only malicious grammars reach; throws ResourceLimit beyond it.
  Body determinise(Node start, Node end) const;

 private:
  struct Record {
    std::vector<Edge> edges;
    std::vector<Node> jumps;
  };
  std::vector<bool> reaching(Node end) const;

  std::vector<Record> nodes_;
};

}  // namespace constrain::cfg
