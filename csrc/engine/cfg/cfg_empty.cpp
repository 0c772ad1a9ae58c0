// Removal of empty words and of rules without words.
#include <utility>

#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

namespace {

/// A state of some rule's body.
struct Place {
  Symbol rule;
  uint32_t node;
};

/// A fixpoint over marked places and symbols.
class Marking {
 public:
  template <class Rules>
  explicit Marking(const Rules& rules) : symbols(rules.size(), false), waiting_(rules.size()) {
    for (const auto& rule : rules) places_.emplace_back(size_of(rule), false);
  }

  void mark(Symbol rule, uint32_t node) {
    if (places_[rule][node]) return;
    places_[rule][node] = true;
    pending_.push_back({rule, node});
  }
  bool marked(Symbol rule, uint32_t node) const { return places_[rule][node]; }

  /// Marks a place once `symbol` is marked.
  void mark_after(Symbol symbol, Symbol rule, uint32_t node) {
    if (symbols[symbol]) {
      mark(rule, node);
    } else {
      waiting_[symbol].push_back({rule, node});
    }
  }

  void mark_symbol(Symbol symbol) {
    if (symbols[symbol]) return;
    symbols[symbol] = true;
    for (const Place& place : std::exchange(waiting_[symbol], {})) mark(place.rule, place.node);
  }

  /// Calls `follow(place)` for every marked place, including those it marks itself.
  template <class Follow>
  void run(Follow follow) {
    while (!pending_.empty()) {
      const Place place = pending_.back();
      pending_.pop_back();
      follow(place);
    }
  }

  std::vector<bool> symbols;

 private:
  static size_t size_of(const Net& net) { return net.size(); }
  static size_t size_of(const Body& body) { return body.states.size(); }

  std::vector<std::vector<bool>> places_;
  std::vector<std::vector<Place>> waiting_;
  std::vector<Place> pending_;
};

void clear_unreachable(Body& body) {
  std::vector<bool> reached(body.states.size(), false);
  std::vector<uint32_t> pending;
  const auto reach = [&](uint32_t state) {
    if (!reached[state]) reached[state] = true, pending.push_back(state);
  };
  if (!body.states.empty()) reach(0);
  while (!pending.empty()) {
    const uint32_t state = pending.back();
    pending.pop_back();
    for (const Edge& edge : body.states[state].edges) reach(edge.target);
  }
  for (uint32_t state = 0; state < body.states.size(); ++state) {
    if (!reached[state]) body.states[state] = {};
  }
}

}  // namespace

std::vector<bool> nullable_symbols(const Nets& nets) {
  Marking reached(nets);
  for (Symbol rule = 0; rule < nets.size(); ++rule) {
    if (nets[rule].size() > 0) reached.mark(rule, 0);
  }
  reached.run([&](Place at) {
    if (at.node == 1) reached.mark_symbol(at.rule);
    for (Net::Node next : nets[at.rule].jumps(at.node)) reached.mark(at.rule, next);
    for (const Edge& edge : nets[at.rule].edges(at.node)) reached.mark_after(edge.symbol, at.rule, edge.target);
  });
  return reached.symbols;
}

Bodies without_empty_words(Nets nets, const std::vector<bool>& nullable) {
  Bodies bodies(nets.size());
  for (Symbol rule = 0; rule < nets.size(); ++rule) {
    Net& net = nets[rule];
    if (net.size() == 0) continue;
    for (Net::Node node = 0; node < net.size(); ++node) {
      for (const Edge& edge : net.edges(node)) {
        if (nullable[edge.symbol]) net.jump(node, edge.target);
      }
    }
    bodies[rule] = net.determinise(0, 1);
    bodies[rule].states[0].accepting = false;
  }
  return bodies;
}

void remove_unproductive(Bodies& bodies, const std::vector<bool>& inhabited) {
  struct Before {
    uint32_t node;
    Symbol symbol;
  };
  Marking live(bodies);  // places from which the end is reachable, and symbols with words
  std::vector<std::vector<std::vector<Before>>> before(bodies.size());
  for (Symbol rule = 0; rule < bodies.size(); ++rule) {
    const auto& states = bodies[rule].states;
    if (inhabited[rule]) live.mark_symbol(rule);
    before[rule].resize(states.size());
    for (uint32_t node = 0; node < states.size(); ++node) {
      for (const Edge& edge : states[node].edges) before[rule][edge.target].push_back({node, edge.symbol});
      if (states[node].accepting) live.mark(rule, node);
    }
  }
  live.run([&](Place at) {
    if (at.node == 0) live.mark_symbol(at.rule);
    for (const Before& step : before[at.rule][at.node]) live.mark_after(step.symbol, at.rule, step.node);
  });
  for (Symbol rule = 0; rule < bodies.size(); ++rule) {
    for (Body::State& state : bodies[rule].states) {
      std::erase_if(state.edges,
                    [&](const Edge& edge) { return !live.symbols[edge.symbol] || !live.marked(rule, edge.target); });
    }
    clear_unreachable(bodies[rule]);
  }
}

}  // namespace constrain::cfg
