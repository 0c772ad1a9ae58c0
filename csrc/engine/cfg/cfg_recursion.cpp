// Elimination of left recursion.
#include <algorithm>
#include <map>

#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

namespace {

bool opaque(const Body& body) { return body.states.empty(); }

/// Strongly connected components of the relation "A may begin with a call of B" (Tarjan 1972, with an explicit stack).
class FirstCalls {
 public:
  explicit FirstCalls(const Bodies& bodies) : bodies_(bodies), nodes_(bodies.size()) {}

  /// The cycle through `symbol`; empty if it is not left recursive.
  std::vector<Symbol> cycle(Symbol symbol) {
    if (nodes_[symbol].component == kNone) search(symbol);
    const auto& members = components_[nodes_[symbol].component];
    if (members.size() > 1) return members;
    for (const Edge& edge : bodies_[symbol].states[0].edges) {
      if (edge.symbol == symbol) return members;
    }
    return {};
  }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  struct Node {
    uint32_t index = kNone, low = kNone, component = kNone;
    size_t next_edge = 0;
  };

  void enter(Symbol symbol) {
    nodes_[symbol].index = nodes_[symbol].low = count_++;
    path_.push_back(symbol);
    open_.push_back(symbol);
  }

  void search(Symbol root) {
    enter(root);
    while (!path_.empty()) {
      const Symbol at = path_.back();
      Node& node = nodes_[at];
      const auto& edges = bodies_[at].states[0].edges;
      if (node.next_edge == edges.size()) {
        leave(at);
        continue;
      }
      const Symbol next = edges[node.next_edge++].symbol;
      if (opaque(bodies_[next])) continue;
      if (nodes_[next].index == kNone) {
        enter(next);
      } else if (nodes_[next].component == kNone) {
        node.low = std::min(node.low, nodes_[next].index);
      }
    }
  }

  void leave(Symbol at) {
    const uint32_t low = nodes_[at].low;
    path_.pop_back();
    if (!path_.empty()) nodes_[path_.back()].low = std::min(nodes_[path_.back()].low, low);
    if (low != nodes_[at].index) return;
    std::vector<Symbol> members;
    do {
      members.push_back(open_.back());
      open_.pop_back();
      nodes_[members.back()].component = static_cast<uint32_t>(components_.size());
    } while (members.back() != at);
    components_.push_back(std::move(members));
  }

  const Bodies& bodies_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Symbol>> components_;
  std::vector<Symbol> path_, open_;
  uint32_t count_ = 0;
};

/// The left-linear grammar of one cycle: a single net, with an end for each rule of the cycle.
class Cycle {
 public:
  Cycle(const Bodies& bodies, const std::vector<Symbol>& members) {
    start_ = net_.node();
    for (const Symbol member : members) completed_[member] = net_.node();
    for (const Symbol member : members) add(bodies[member], completed_[member]);
  }

  Body body(Symbol member) const { return net_.determinise(start_, completed_.at(member)); }

 private:
  void add(const Body& body, Net::Node completed) {
    std::vector<Net::Node> nodes;
    for (size_t i = 0; i < body.states.size(); ++i) nodes.push_back(net_.node());
    for (size_t i = 0; i < body.states.size(); ++i) {
      if (body.states[i].accepting) net_.jump(nodes[i], completed);
      for (const Edge& edge : body.states[i].edges) {
        const auto inside = completed_.find(edge.symbol);
        if (i > 0) {
          net_.edge(nodes[i], edge.symbol, nodes[edge.target]);
        } else if (inside != completed_.end()) {
          net_.jump(inside->second, nodes[edge.target]);
        } else {
          net_.edge(start_, edge.symbol, nodes[edge.target]);
        }
      }
    }
  }

  Net net_;
  Net::Node start_;
  std::map<Symbol, Net::Node> completed_;
};

}  // namespace

Bodies without_left_recursion(const Bodies& bodies, Symbol start) {
  FirstCalls first_calls(bodies);
  std::map<Symbol, Cycle> cycles;  // by the first member
  Bodies result(bodies.size());
  std::vector<Symbol> pending{start};
  while (!pending.empty()) {
    const Symbol symbol = pending.back();
    pending.pop_back();
    if (opaque(bodies[symbol]) || !opaque(result[symbol])) continue;
    const std::vector<Symbol> members = first_calls.cycle(symbol);
    if (members.empty()) {
      result[symbol] = bodies[symbol];
    } else {
      result[symbol] = cycles.try_emplace(members.front(), bodies, members).first->second.body(symbol);
    }
    for (const Body::State& state : result[symbol].states) {
      for (const Edge& edge : state.edges) pending.push_back(edge.symbol);
    }
  }
  return result;
}

size_t first_call_depth(const Bodies& bodies, Symbol start) {
  constexpr size_t kUnknown = SIZE_MAX;
  std::vector<size_t> depth(bodies.size(), kUnknown);
  std::vector<Symbol> path{start};
  while (!path.empty()) {
    const Symbol at = path.back();
    size_t deepest = 0;
    bool complete = true;
    if (!opaque(bodies[at])) {
      for (const Edge& edge : bodies[at].states[0].edges) {
        if (depth[edge.symbol] == kUnknown) {
          path.push_back(edge.symbol);
          complete = false;
        } else {
          deepest = std::max(deepest, depth[edge.symbol]);
        }
      }
    }
    if (!complete) continue;
    depth[at] = deepest + 1;
    path.pop_back();
  }
  return depth[start];
}

}  // namespace constrain::cfg
