#include "engine/cfg/cfg_body.h"

#include <algorithm>
#include <unordered_map>

#include "engine/base/errors.h"

namespace constrain::cfg {

namespace {

constexpr size_t kMaxBodyStates = 50'000;

using NodeSet = std::vector<Net::Node>;

struct NodeSetHash {
  size_t operator()(const NodeSet& set) const {
    uint64_t hash = set.size();
    for (Net::Node node : set) hash = (hash ^ node) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 32;
    return hash;
  }
};

/// Epsilon closure that keeps only the nodes that distinguish sets: those with edges, and the end.
class Closure {
 public:
  Closure(const Net& net, Net::Node end, const std::vector<bool>& reaching)
      : net_(net), end_(end), reaching_(reaching), stamp_(net.size(), 0) {}

  NodeSet of(NodeSet seeds) {
    ++round_;
    NodeSet result;
    for (Net::Node seed : seeds) mark(seed);
    while (!pending_.empty()) {
      const Net::Node node = pending_.back();
      pending_.pop_back();
      if (node == end_ || !net_.edges(node).empty()) result.push_back(node);
      for (Net::Node next : net_.jumps(node)) mark(next);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  void mark(Net::Node node) {
    if (!reaching_[node] || stamp_[node] == round_) return;
    stamp_[node] = round_;
    pending_.push_back(node);
  }

  const Net& net_;
  const Net::Node end_;
  const std::vector<bool>& reaching_;
  std::vector<uint32_t> stamp_;
  uint32_t round_ = 0;
  NodeSet pending_;
};

}  // namespace

std::vector<bool> Net::reaching(Node end) const {
  std::vector<std::vector<Node>> before(nodes_.size());
  for (Node node = 0; node < nodes_.size(); ++node) {
    for (const Edge& edge : nodes_[node].edges) before[edge.target].push_back(node);
    for (Node next : nodes_[node].jumps) before[next].push_back(node);
  }
  std::vector<bool> result(nodes_.size(), false);
  NodeSet pending{end};
  result[end] = true;
  while (!pending.empty()) {
    const Node node = pending.back();
    pending.pop_back();
    for (Node previous : before[node]) {
      if (!result[previous]) result[previous] = true, pending.push_back(previous);
    }
  }
  return result;
}

Body Net::determinise(Node start, Node end) const {
  std::optional<Body> body = determinise(start, end, kMaxBodyStates);
  if (!body) throw ResourceLimit("max_states", kMaxBodyStates, "in the body of a grammar rule");
  return *std::move(body);
}

std::optional<Body> Net::determinise(Node start, Node end, size_t limit) const {
  const std::vector<bool> live = reaching(end);
  Closure closure(*this, end, live);
  Body body;
  std::vector<NodeSet> sets;
  std::unordered_map<NodeSet, uint32_t, NodeSetHash> ids;

  const auto add = [&](NodeSet set) {
    body.states.push_back({{}, std::binary_search(set.begin(), set.end(), end)});
    sets.push_back(std::move(set));
    return static_cast<uint32_t>(sets.size() - 1);
  };

  add(closure.of({start}));  // not in `ids`, so that nothing leads back to it
  for (uint32_t state = 0; state < sets.size(); ++state) {
    if (sets.size() > limit) return std::nullopt;
    std::vector<Edge> moves;
    for (Node node : sets[state]) {
      for (const Edge& edge : nodes_[node].edges) {
        if (live[edge.target]) moves.push_back(edge);
      }
    }
    std::stable_sort(moves.begin(), moves.end(), [](const Edge& a, const Edge& b) { return a.symbol < b.symbol; });
    for (size_t i = 0; i < moves.size();) {
      const Symbol symbol = moves[i].symbol;
      NodeSet targets;
      for (; i < moves.size() && moves[i].symbol == symbol; ++i) targets.push_back(moves[i].target);
      NodeSet set = closure.of(std::move(targets));
      auto found = ids.find(set);
      if (found == ids.end()) found = ids.emplace(set, add(set)).first;
      body.states[state].edges.push_back({symbol, found->second});
    }
  }
  return body;
}

}  // namespace constrain::cfg
