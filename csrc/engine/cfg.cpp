#include "engine/cfg.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/automaton_rule.h"
#include "engine/cfg_normal.h"
#include "engine/cfg_rule.h"
#include "engine/errors.h"
#include "engine/lexeme.h"

namespace constrain::cfg {

namespace {

constexpr uint32_t kUnrolled = 8;  ///< repetitions up to this many are written out
constexpr size_t kMaxFirstCallDepth = 512;

}  // namespace

/// One run of `Builder::build`.
class Compilation {
 public:
  explicit Compilation(Builder& builder) : builder_(builder), nets_(builder.terminal_of_.size()) {
    for (size_t symbol = 0; symbol < nets_.size(); ++symbol) {
      if (builder.terminal_of_[symbol] == Builder::kNoTerminal) nets_[symbol].node(), nets_[symbol].node();
    }
    for (const auto& definition : builder.definitions_) {
      write({definition.symbol, definition.body, 0, 1});
    }
  }

  Grammar run(Symbol start) {
    std::vector<bool> nullable = nullable_symbols(nets_);
    write_out_empty_elements(nullable);
    Bodies bodies = without_empty_words(nets_, nullable);
    for (const auto& [symbol, count] : counted_) bodies[symbol] = one_or_more(count.element);
    remove_unproductive(bodies, inhabited_terminals());
    if (bodies[start].states[0].edges.empty() && !nullable[start]) throw GrammarError("the start rule matches no text");

    const Symbol root = add_root(bodies, start, nullable[start]);
    std::vector<bool> kept(bodies.size(), false);
    for (const auto& [symbol, count] : counted_) kept[symbol] = true;
    bodies = inlined(without_left_recursion(bodies, root), root, kept);
    if (first_call_depth(bodies, root) > kMaxFirstCallDepth) {
      throw ResourceLimit("max_nesting", kMaxFirstCallDepth, "in a chain of rules that begin with one another");
    }
    return emit(bodies, root);
  }

 private:
  struct Count {
    Symbol element;
    uint32_t min, max;
  };

  Symbol new_rule() {
    nets_.emplace_back();
    nets_.back().node(), nets_.back().node();
    return static_cast<Symbol>(nets_.size() - 1);
  }

  struct Task {
    Symbol rule;
    Expression expression;
    Net::Node from, to;
  };

  /// Writes expressions into nets. Works through a list, because grammars may nest deeper than the stack.
  void write(Task first) {
    tasks_.push_back(first);
    while (!tasks_.empty()) {
      const Task task = tasks_.back();
      tasks_.pop_back();
      const auto& term = builder_.terms_[task.expression];
      switch (term.kind) {
        case Builder::Term::symbol:
          nets_[task.rule].edge(task.from, term.of, task.to);
          break;
        case Builder::Term::sequence:
          write_sequence(task, term.parts);
          break;
        case Builder::Term::choice:
          for (const Expression part : term.parts) tasks_.push_back({task.rule, part, task.from, task.to});
          break;
        case Builder::Term::repeat:
          if (term.max == kUnbounded) {
            write_loop(task, term.parts[0], term.min);
          } else {
            const Net::Node end = repeat(task.rule, term.parts[0], term.min, term.max, task.from);
            nets_[task.rule].jump(end, task.to);
          }
          break;
      }
    }
  }

  void write_sequence(const Task& task, const std::vector<Expression>& parts) {
    Net& net = nets_[task.rule];
    Net::Node at = task.from;
    for (const Expression part : parts) {
      const Net::Node next = net.node();
      tasks_.push_back({task.rule, part, at, next});
      at = next;
    }
    net.jump(at, task.to);
  }

  void write_loop(const Task& task, Expression part, uint32_t min) {
    const uint32_t before = min > 0 ? min - 1 : 0;
    const Net::Node at = repeat(task.rule, part, before, before, task.from);
    Net& net = nets_[task.rule];
    const Net::Node begin = net.node(), end = net.node();
    net.jump(at, begin), net.jump(end, begin), net.jump(end, task.to);
    if (min == 0) net.jump(begin, task.to);
    tasks_.push_back({task.rule, part, begin, end});
  }

  /// Between `min` and `max` words of `part` from `at` on; returns where they end. Beyond a few, all but the first word
  /// become a counted rule. The first stays outside, so that no rule begins with a counted one and left recursion
  /// cannot lead through it.
  Net::Node repeat(Symbol rule, Expression part, uint32_t min, uint32_t max, Net::Node at) {
    if (max == 0) return at;
    const Symbol element = as_symbol(part);
    if (max > kUnrolled) return count(rule, element, min, max, at);
    Net& net = nets_[rule];
    const Net::Node end = net.node();
    for (uint32_t i = 0; i < max; ++i) {
      if (i >= min) net.jump(at, end);
      const Net::Node next = net.node();
      net.edge(at, element, next);
      at = next;
    }
    net.jump(at, end);
    return end;
  }

  Net::Node count(Symbol rule, Symbol element, uint32_t min, uint32_t max, Net::Node at) {
    const Symbol rest = new_rule();
    counted_[rest] = {element, min > 0 ? min - 1 : 0, max - 1};
    nets_[rest].edge(0, element, 1);
    if (min <= 1) nets_[rest].jump(0, 1);
    Net& net = nets_[rule];
    const Net::Node middle = net.node(), end = net.node();
    net.edge(at, element, middle);
    net.edge(middle, rest, end);
    if (min == 0) net.jump(at, end);
    return end;
  }

  Symbol as_symbol(Expression expression) {
    const auto& term = builder_.terms_[expression];
    if (term.kind == Builder::Term::symbol) return term.of;
    const auto [it, added] = elements_.try_emplace(expression, 0);
    if (added) {
      it->second = new_rule();
      tasks_.push_back({it->second, expression, 0, 1});
    }
    return it->second;
  }

  /// Words that may be empty need no lower bound, and cannot be counted: the empty ones take no step. Their repetitions
  /// are written out by doubling.
  void write_out_empty_elements(std::vector<bool>& nullable) {
    for (auto it = counted_.begin(); it != counted_.end();) {
      const auto [rule, count] = *it;
      if (!nullable[count.element]) {
        ++it;
        continue;
      }
      it = counted_.erase(it);
      Symbol power = count.element;  // 2^i words
      Net::Node at = 0;
      for (uint32_t left = count.max; left > 0; left /= 2) {
        if (left % 2) {
          const Net::Node next = nets_[rule].node();
          nets_[rule].edge(at, power, next);
          at = next;
        }
        const Symbol twice = new_rule();
        nullable.push_back(true);
        const Net::Node middle = nets_[twice].node();
        nets_[twice].edge(0, power, middle), nets_[twice].edge(middle, power, 1);
        power = twice;
      }
      nets_[rule].jump(at, 1);
    }
  }

  static Body one_or_more(Symbol element) {
    Body body;
    body.states.resize(2);
    body.states[0].edges = body.states[1].edges = {{element, 1}};
    body.states[1].accepting = true;
    return body;
  }

  std::vector<bool> inhabited_terminals() const {
    std::vector<bool> result(nets_.size(), false);
    for (Symbol symbol = 0; symbol < builder_.terminal_of_.size(); ++symbol) {
      const Builder::Terminal* terminal = this->terminal(symbol);
      result[symbol] = terminal ? terminal->language->start() != kDead : embedded(symbol) != nullptr;
    }
    return result;
  }

  /// Symbols below `start`, in the order met.
  static std::vector<Symbol> reachable(const Bodies& bodies, Symbol start) {
    std::vector<bool> seen(bodies.size(), false);
    std::vector<Symbol> found{start};
    seen[start] = true;
    for (size_t i = 0; i < found.size(); ++i) {
      for (const Body::State& state : bodies[found[i]].states) {
        for (const Edge& edge : state.edges) {
          if (!seen[edge.symbol]) seen[edge.symbol] = true, found.push_back(edge.symbol);
        }
      }
    }
    return found;
  }

  const Builder::Terminal* terminal(Symbol symbol) const {
    if (symbol >= builder_.terminal_of_.size()) return nullptr;
    const uint32_t index = builder_.terminal_of_[symbol];
    return index < Builder::kEmbedded ? &builder_.terminals_[index] : nullptr;
  }

  const Builder::Embedded* embedded(Symbol symbol) const {
    const auto found = builder_.embedded_terminals_.find(symbol);
    return found == builder_.embedded_terminals_.end() ? nullptr : &found->second;
  }

  /// The rule of whole texts: the start rule, with ignored text around it. Settles what the terminals match.
  Symbol add_root(Bodies& bodies, Symbol start, bool nullable) {
    std::vector<Symbol> used, used_rules;
    std::vector<ByteSet> first(bodies.size());
    ByteSet next;
    for (const Symbol symbol : reachable(bodies, start)) {
      if (const auto* terminal = this->terminal(symbol)) {
        used.push_back(symbol);
        first[symbol] = live_bytes(*terminal->language, terminal->language->start());
      } else if (const auto* rule = embedded(symbol)) {
        used_rules.push_back(symbol);
        first[symbol] = rule->first;
      }
      next.add(first[symbol]);
    }
    check_following(bodies, start, used, std::move(first));
    Net net;
    const Net::Node begin = net.node(), text = net.node(), trail = net.node(), end = net.node();
    if (!bodies[start].states[0].edges.empty()) net.edge(text, start, trail);
    if (nullable) net.jump(text, trail);
    net.jump(begin, text), net.jump(trail, end);
    if (builder_.ignored_.empty()) {
      for (const Symbol symbol : used) lexemes_[symbol] = terminal(symbol)->language;
      for (const Symbol symbol : used_rules) rules_[symbol] = embedded(symbol)->rule;
    } else {
      std::vector<AutomatonPtr> ignored;
      for (const auto& part : builder_.ignored_) ignored.push_back(part.language);
      const Lexemes lexemes(std::move(ignored), next);
      for (const Symbol symbol : used)
        lexemes_[symbol] = decided(lexemes.of(terminal(symbol)->language), terminal(symbol)->name);
      for (const Symbol symbol : used_rules) surround(bodies, symbol, lexemes);
      add_ignored(bodies, net, begin, text, lexemes.after());
      add_ignored(bodies, net, trail, end, lexemes.after_last());
    }
    bodies.push_back(net.determinise(begin, end));
    return static_cast<Symbol>(bodies.size() - 1);
  }

  /// Refuses terminals that match other texts before some of what may follow them.
  void check_following(const Bodies& bodies, Symbol start, const std::vector<Symbol>& used,
                       std::vector<ByteSet> first) const {
    const auto watches = [&](Symbol symbol) { return terminal(symbol)->watched != ByteSet(); };
    if (std::ranges::none_of(used, watches)) return;
    const std::vector<ByteSet> following = following_bytes(bodies, start, std::move(first));
    ByteSet ignored;
    for (const auto& part : builder_.ignored_) ignored.add(live_bytes(*part.language, part.language->start()));
    for (const Symbol symbol : used) {
      ByteSet next = following[symbol];
      next.add(ignored);
      const int byte = (next & terminal(symbol)->watched).next(0);
      if (byte < 0) continue;
      const bool printable = byte > 0x20 && byte < 0x7F;
      throw GrammarError(
          "terminal '" + terminal(symbol)->name + "' cannot be used: it looks at the text after it, which may begin " +
          (printable ? std::string("with '") + static_cast<char>(byte) + "'" : "with what it looks for") + " here");
    }
  }

  static AutomatonPtr decided(AutomatonPtr language, const std::string& name) {
    if (language) return language;
    throw GrammarError("ignored text before terminal '" + name +
                       "' may still have been about to match a longer text where the terminal ends");
  }

  /// Gives an embedded rule, which reads none, the ignored text around it.
  void surround(Bodies& bodies, Symbol symbol, const Lexemes& lexemes) {
    const Builder::Embedded& rule = *embedded(symbol);
    Net net;
    const Net::Node begin = net.node(), word = net.node(), trail = net.node(), end = net.node();
    net.jump(begin, word), net.jump(trail, end);
    add_ignored(bodies, net, begin, word, decided(lexemes.before(rule.first), rule.name));
    add_ignored(bodies, net, trail, end, lexemes.after());
    rules_[add_opaque(bodies, net, word, trail)] = rule.rule;
    bodies[symbol] = net.determinise(begin, end);
  }

  void add_ignored(Bodies& bodies, Net& net, Net::Node from, Net::Node to, AutomatonPtr language) {
    if (language->start() == kDead) return;
    lexemes_[add_opaque(bodies, net, from, to)] = std::move(language);
  }

  /// A new symbol that is not looked into, as an edge of a net.
  static Symbol add_opaque(Bodies& bodies, Net& net, Net::Node from, Net::Node to) {
    const auto symbol = static_cast<Symbol>(bodies.size());
    bodies.emplace_back();
    net.edge(from, symbol, to);
    return symbol;
  }

  Grammar emit(const Bodies& bodies, Symbol root) {
    Grammar grammar = std::move(builder_.embedded_);
    std::vector<Symbol> symbols = reachable(bodies, root);
    std::vector<RuleId> number(bodies.size());
    for (const auto& [symbol, rule] : rules_) number[symbol] = rule;
    std::erase_if(symbols, [&](Symbol symbol) { return rules_.contains(symbol); });
    for (RuleId i = 0; i < symbols.size(); ++i) number[symbols[i]] = static_cast<RuleId>(grammar.rules.size()) + i;
    for (const Symbol symbol : symbols) {
      const auto counted = counted_.find(symbol);
      if (const auto lexeme = lexemes_.find(symbol); lexeme != lexemes_.end()) {
        grammar.add(std::make_unique<AutomatonRule>(lexeme->second));
      } else if (counted != counted_.end()) {
        const Count& count = counted->second;
        grammar.add(std::make_unique<CountedRule>(number[count.element], std::max(count.min, 1u), count.max));
      } else {
        Body body = bodies[symbol];
        for (Body::State& state : body.states) {
          for (Edge& edge : state.edges) edge.symbol = number[edge.symbol];
        }
        grammar.add(std::make_unique<BodyRule>(std::move(body)));
      }
    }
    grammar.root = number[root];
    return grammar;
  }

  Builder& builder_;
  Nets nets_;
  std::vector<Task> tasks_;
  std::map<Symbol, Count> counted_;
  std::map<Expression, Symbol> elements_;
  std::map<Symbol, AutomatonPtr> lexemes_;
  std::map<Symbol, RuleId> rules_;  ///< embedded ones
};

Grammar Builder::build(Symbol start) {
  check(start);
  if (std::exchange(built_, true)) throw GrammarError("a grammar is built only once");
  if (terminal_of_[start] != kNoTerminal) throw GrammarError("a terminal is no rule to start with");
  return Compilation(*this).run(start);
}

}  // namespace constrain::cfg
