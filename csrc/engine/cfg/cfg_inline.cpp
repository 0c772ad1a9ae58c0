// Inlining of rules.

#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

namespace {

constexpr size_t kSmall = 8;       ///< edges of a body that is inlined at every call
constexpr size_t kLarge = 20'000;  ///< edges beyond which nothing more is inlined into a body

/// Decides which rules are inlined, callees first, so that sizes after their own inlining are known.
class Inliner {
 public:
  Inliner(const Bodies& bodies, Symbol start, const std::vector<bool>& kept) : bodies_(bodies), notes_(bodies.size()) {
    for (Symbol symbol = 0; symbol < bodies.size(); ++symbol) notes_[symbol].stays = kept[symbol];
    notes_[start].stays = true;
    count_calls();
    decide(start);
  }

  /// The body of a rule after inlining, or before it if determinisation would make it too large.
  Body expand(Symbol root) const {
    struct Task {
      Symbol rule;
      Net::Node from, to;
    };
    Net net;
    const Net::Node from = net.node(), to = net.node();
    std::vector<Task> tasks{{root, from, to}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      const auto& states = bodies_[task.rule].states;
      std::vector<Net::Node> nodes{task.from};
      for (size_t i = 1; i < states.size(); ++i) nodes.push_back(net.node());
      for (size_t i = 0; i < states.size(); ++i) {
        if (states[i].accepting) net.jump(nodes[i], task.to);
        for (const Edge& edge : states[i].edges) {
          if (notes_[edge.symbol].inlined) {
            tasks.push_back({edge.symbol, nodes[i], nodes[edge.target]});
          } else {
            net.edge(nodes[i], edge.symbol, nodes[edge.target]);
          }
        }
      }
    }
    return net.determinise(from, to, 4 * net.size()).value_or(bodies_[root]);
  }

 private:
  struct Note {
    size_t calls = 0;    ///< number in the whole grammar
    size_t size = 0;     ///< edges after inlining
    bool stays = false;  ///< never inlined
    bool inlined = false;
    enum { unseen, open, closed } progress = unseen;
  };

  bool has_body(Symbol symbol) const { return !bodies_[symbol].states.empty(); }

  template <class Use>
  void for_each_call(Symbol symbol, Use use) const {
    for (const Body::State& state : bodies_[symbol].states) {
      for (const Edge& edge : state.edges) use(edge.symbol);
    }
  }

  void count_calls() {
    for (Symbol symbol = 0; symbol < bodies_.size(); ++symbol) {
      for_each_call(symbol, [&](Symbol callee) { ++notes_[callee].calls; });
    }
  }

  /// Depth first with an explicit stack. A rule that is met while it is open is recursive, and stays.
  void decide(Symbol start) {
    std::vector<Symbol> path{start};
    while (!path.empty()) {
      const Symbol at = path.back();
      Note& note = notes_[at];
      if (note.progress == Note::unseen) {
        note.progress = Note::open;
        for_each_call(at, [&](Symbol callee) {
          if (!has_body(callee)) return;
          if (notes_[callee].progress == Note::unseen) path.push_back(callee);
        });
        continue;
      }
      path.pop_back();
      if (note.progress == Note::open) close(at);
    }
  }

  void close(Symbol at) {
    Note& note = notes_[at];
    note.progress = Note::closed;
    for_each_call(at, [&](Symbol callee) {
      Note& other = notes_[callee];
      if (callee == at || other.progress == Note::open) other.stays = true;
      note.size += other.inlined ? other.size : 1;
    });
    note.inlined = !note.stays && (note.size <= kSmall || (note.calls == 1 && note.size <= kLarge));
  }

  const Bodies& bodies_;
  std::vector<Note> notes_;
};

}  // namespace

Bodies inlined(const Bodies& bodies, Symbol start, const std::vector<bool>& kept) {
  const Inliner inliner(bodies, start, kept);
  Bodies result(bodies.size());
  std::vector<Symbol> pending{start};
  while (!pending.empty()) {
    const Symbol symbol = pending.back();
    pending.pop_back();
    if (bodies[symbol].states.empty() || !result[symbol].states.empty()) continue;
    result[symbol] = kept[symbol] ? bodies[symbol] : inliner.expand(symbol);
    for (const Body::State& state : result[symbol].states) {
      for (const Edge& edge : state.edges) pending.push_back(edge.symbol);
    }
  }
  return result;
}

}  // namespace constrain::cfg
