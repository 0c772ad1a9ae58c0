#include "engine/cfg/cfg.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/automata/lexeme.h"
#include "engine/base/errors.h"
#include "engine/cfg/cfg_normal.h"
#include "engine/cfg/cfg_rule.h"
#include "engine/cfg/cfg_writer.h"
#include "engine/grammar/automaton_rule.h"
#include "engine/text/special_token.h"

namespace constrain::cfg {

namespace {

constexpr size_t kMaxFirstCallDepth = 512;

}  // namespace

/// One run of `Builder::build`.
class Compilation {
 public:
  explicit Compilation(Builder& builder) : builder_(builder) {}

  Grammar run() {
    NetWriter written(builder_);
    std::vector<bool> nullable = nullable_symbols(written.nets());
    written.write_out_empty_elements(nullable);
    counted_ = written.counted();
    Bodies bodies = without_empty_words(written.nets(), nullable);
    for (const auto& [symbol, count] : counted_) bodies[symbol] = one_or_more(count.element);
    remove_unproductive(bodies, inhabited(nullable));
    check_productive(bodies, nullable);
    const Symbol root = builder_.scopes_[0].root;
    fix_terminals(bodies, nullable);
    std::vector<bool> kept(bodies.size(), false);
    for (const auto& [symbol, count] : counted_) kept[symbol] = true;
    bodies = inlined(without_left_recursion(bodies, root), root, kept);
    if (first_call_depth(bodies, root) > kMaxFirstCallDepth) {
      throw ResourceLimit("max_nesting", kMaxFirstCallDepth, "in a chain of rules that begin with one another");
    }
    return emit(bodies, root);
  }

 private:
  static Body one_or_more(Symbol element) {
    Body body;
    body.states.resize(2);
    body.states[0].edges = body.states[1].edges = {{element, 1}};
    body.states[1].accepting = true;
    return body;
  }

  /// Symbols with words besides those of their bodies: terminals, and texts that are only ignored text.
  std::vector<bool> inhabited(const std::vector<bool>& nullable) const {
    std::vector<bool> result(nullable.size(), false);
    for (Symbol symbol = 0; symbol < builder_.terminal_of_.size(); ++symbol) {
      const Builder::Terminal* terminal = this->terminal(symbol);
      result[symbol] = terminal ? terminal->language->start() != kDead : embedded(symbol) != nullptr;
    }
    for (const auto& part : builder_.scopes_) {
      if (nullable[part.root] && !part.ignored.empty()) result[part.root] = true;
    }
    return result;
  }

  /// Reports rules without words. Dependencies come last, so the first one reported is itself the cause.
  void check_productive(const Bodies& bodies, const std::vector<bool>& nullable) const {
    for (size_t scope = builder_.scopes_.size(); scope-- > 0;) {
      const auto& part = builder_.scopes_[scope];
      if (nullable[part.root] || !bodies[part.root].states[0].edges.empty()) continue;
      throw GrammarError(scope == 0 ? "the start rule matches no text" : "grammar '" + part.name + "' matches no text");
    }
  }

  /// Symbols reachable from `start`, in order of discovery.
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

  const Builder::Text* text(Symbol symbol) const {
    const auto found = builder_.texts_.find(symbol);
    return found == builder_.texts_.end() ? nullptr : &found->second;
  }

  Scope scope_of(Symbol terminal_or_text) const {
    if (const auto* terminal = this->terminal(terminal_or_text)) return terminal->scope;
    if (const auto* rule = embedded(terminal_or_text)) return rule->scope;
    return text(terminal_or_text)->within;
  }

  /// Names the grammar in messages.
  std::string in(Scope scope) const { return scope == 0 ? "" : "in grammar '" + builder_.scopes_[scope].name + "': "; }

  /// Symbols that the rules of one grammar reach, and the bytes that it may begin with.
  struct Words {
    std::vector<Symbol> symbols;
    ByteSet first;
  };

  /// Surrounds each grammar with its ignored text, and fixes the languages of terminals.
  void fix_terminals(Bodies& bodies, const std::vector<bool>& nullable) {
    std::vector<Symbol> used = reachable(bodies, builder_.scopes_[0].root);
    std::erase_if(used, [&](Symbol symbol) { return !terminal(symbol) && !embedded(symbol) && !text(symbol); });
    const std::vector<ByteSet> first = first_bytes(bodies, first_of_words(bodies.size(), used));
    check_following(bodies, used, first);
    check_last(bodies, used, first);
    std::vector<Words> words(builder_.scopes_.size());
    for (const Symbol symbol : used) {
      Words& own = words[scope_of(symbol)];
      own.symbols.push_back(symbol), own.first.add(first[symbol]);
    }
    for (Scope scope = 0; scope < words.size(); ++scope) {
      const auto& part = builder_.scopes_[scope];
      if (!part.ignored.empty()) {
        const Lexemes lexemes(part.ignored, words[scope].first);
        for (const Symbol symbol : words[scope].symbols) surround(bodies, symbol, first[symbol], lexemes);
        surround_text(bodies, part.root, nullable[part.root], lexemes);
      } else {
        for (const Symbol symbol : words[scope].symbols) {
          if (const auto* terminal = this->terminal(symbol)) lexemes_[symbol] = terminal->language;
          if (const auto* rule = embedded(symbol)) rules_[symbol] = rule->rule;
        }
      }
      bodies[part.root].states[0].accepting = scope == 0 && nullable[part.root];
    }
  }

  /// First bytes of terminals, and of the ignored text of grammars.
  std::vector<ByteSet> first_of_words(size_t count, const std::vector<Symbol>& used) const {
    std::vector<ByteSet> first(count);
    for (const Symbol symbol : used) {
      if (const auto* terminal = this->terminal(symbol)) {
        first[symbol] = live_bytes(*terminal->language, terminal->language->start());
      } else if (const auto* rule = embedded(symbol)) {
        first[symbol] = rule->first;
      }
    }
    for (const auto& part : builder_.scopes_) first[part.root] = first_of_ignored(part);
    return first;
  }

  static ByteSet first_of_ignored(const Builder::Part& part) {
    ByteSet bytes;
    for (const AutomatonPtr& language : part.ignored) bytes.add(live_bytes(*language, language->start()));
    return bytes;
  }

  /// Refuses terminals whose match changes with some text that may follow them in their grammar. Lookahead ends at
  /// special tokens.
  void check_following(const Bodies& bodies, const std::vector<Symbol>& used, const std::vector<ByteSet>& first) const {
    const auto watches = [&](Symbol symbol) { return terminal(symbol) && terminal(symbol)->watched != ByteSet(); };
    if (std::ranges::none_of(used, watches)) return;
    std::vector<Symbol> roots;
    for (const auto& part : builder_.scopes_) roots.push_back(part.root);
    const std::vector<ByteSet> following = following_bytes(bodies, roots, first);
    ByteSet special;
    special.add(static_cast<uint8_t>(kSpecialMark));
    for (const Symbol symbol : used) {
      if (!watches(symbol)) continue;
      ByteSet next = following[symbol];
      next.add(first_of_ignored(builder_.scopes_[terminal(symbol)->scope]));
      const int byte = (next & ~special & terminal(symbol)->watched).next(0);
      if (byte < 0) continue;
      const bool printable = byte > 0x20 && byte < 0x7F;
      throw GrammarError(
          in(terminal(symbol)->scope) + "terminal '" + terminal(symbol)->name +
          "' cannot be used: it looks at the text after it, which may begin " +
          (printable ? std::string("with '") + static_cast<char>(byte) + "'" : "with what it looks for") + " here");
    }
  }

  /// Refuses terminals that end texts if something may follow them, in any grammar.
  void check_last(const Bodies& bodies, const std::vector<Symbol>& used, const std::vector<ByteSet>& first) const {
    const auto is_last = [&](Symbol symbol) { return terminal(symbol) && terminal(symbol)->ends_text; };
    if (std::ranges::none_of(used, is_last)) return;
    const std::vector<ByteSet> following = following_bytes(bodies, {builder_.scopes_[0].root}, first);
    for (const Symbol symbol : used) {
      if (!is_last(symbol) || following[symbol] == ByteSet()) continue;
      throw GrammarError(in(terminal(symbol)->scope) + "'" + terminal(symbol)->name +
                         "' ends the text, so nothing may follow it");
    }
  }

  AutomatonPtr decided(AutomatonPtr language, Scope scope, const std::string& name) const {
    if (language) return language;
    throw GrammarError(in(scope) + "ignored text before terminal '" + name +
                       "' may still have been about to match a longer text where the terminal ends");
  }

  /// Surrounds a terminal, or a text of another grammar, with ignored text. Automata contain theirs.
  void surround(Bodies& bodies, Symbol symbol, const ByteSet& first, const Lexemes& lexemes) {
    if (const auto* terminal = this->terminal(symbol)) {
      lexemes_[symbol] = decided(lexemes.of(terminal->language), terminal->scope, terminal->name);
      return;
    }
    const auto* rule = embedded(symbol);
    const std::string& name = rule ? rule->name : text(symbol)->name;
    Net net;
    const Net::Node begin = net.node(), word = net.node(), trail = net.node(), end = net.node();
    net.jump(begin, word), net.jump(trail, end);
    add_ignored(bodies, net, begin, word, decided(lexemes.before(first), scope_of(symbol), name));
    add_ignored(bodies, net, trail, end, lexemes.after());
    if (rule) {
      rules_[add_opaque(bodies, net, word, trail)] = rule->rule;
    } else {
      net.edge(word, builder_.scopes_[text(symbol)->of].root, trail);
    }
    bodies[symbol] = net.determinise(begin, end);
  }

  /// Surrounds the texts of a grammar with ignored text, which is a text by itself if the start is nullable.
  void surround_text(Bodies& bodies, Symbol root, bool nullable, const Lexemes& lexemes) {
    Net net;
    const Net::Node begin = net.node(), text = net.node(), trail = net.node(), end = net.node();
    for (const Edge& start : bodies[root].states[0].edges) net.edge(text, start.symbol, trail);
    if (nullable) net.jump(text, trail);
    net.jump(begin, text), net.jump(trail, end);
    add_ignored(bodies, net, begin, text, lexemes.after());
    add_ignored(bodies, net, trail, end, lexemes.after_last());
    bodies[root] = net.determinise(begin, end);
  }

  void add_ignored(Bodies& bodies, Net& net, Net::Node from, Net::Node to, AutomatonPtr language) {
    if (language->start() == kDead) return;
    lexemes_[add_opaque(bodies, net, from, to)] = std::move(language);
  }

  /// Adds an opaque symbol as an edge of a net.
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
  std::map<Symbol, Count> counted_;
  std::map<Symbol, AutomatonPtr> lexemes_;
  std::map<Symbol, RuleId> rules_;  ///< embedded rules
};

Grammar Builder::build(Symbol start) {
  check(start);
  if (std::exchange(built_, true)) throw GrammarError("a grammar is built only once");
  if (terminal_of_[start] != kNoTerminal) throw GrammarError("a terminal is no rule to start with");
  scopes_[0].root = nonterminal();
  define(scopes_[0].root, symbol(start));
  return Compilation(*this).run();
}

}  // namespace constrain::cfg
