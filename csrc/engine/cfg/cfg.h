// The builder of context-free grammars over regular terminals, and their normalisation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/base/byte_set.h"
#include "engine/cfg/cfg_body.h"
#include "engine/grammar/rule.h"

namespace constrain::cfg {

/// A piece of a rule's body.
using Expression = uint32_t;

/// A grammar with ignored text of its own. Whole texts belong to grammar 0; others may be embedded like words.
using Scope = uint32_t;

inline constexpr uint32_t kUnbounded = 0xFFFFFFFFu;

/// Collects the rules of a grammar, and compiles them to engine rules with the same language. Rules may be ambiguous,
/// nullable, and recursive in every way.
///
/// Ignored text may occur before, between and after terminals: any sequence of words of the `ignore`d languages. Each
/// takes the longest word it can, as a lexer would (see lexeme.h).
///
/// Symbols must be created before they are used, else GrammarError is thrown.
class Builder {
 public:
  Builder() : scopes_(1) {}

  /// Adds a grammar. `name` is for error messages, here and below.
  Scope scope(std::string name);

  /// Sets the start rule of an added grammar, whose texts include its ignored text.
  void start(Scope scope, Symbol symbol);

  /// Adds a rule of the grammar `within` whose words are the texts of an added one. They behave like terminals: ignored
  /// text surrounds them, and lookahead ends where they end.
  Symbol text(Scope scope, Scope within, std::string name);

  /// Adds a terminal. If a byte of `watched` follows, its language would be another one, so that is refused. Throws
  /// GrammarError if the language contains the empty word.
  Symbol terminal(AutomatonPtr language, std::string name, Scope scope = 0, const ByteSet& watched = {});
  /// Declares that the text ends after the terminal: `build` throws GrammarError if something may follow it.
  void ends_text(Symbol terminal);
  void ignore(AutomatonPtr language, std::string name, Scope scope = 0);

  /// Rules of other front ends, which call one another and keep their numbers in the built grammar.
  Grammar& embedded() { return embedded_; }

  /// Adds a terminal whose words are those of an embedded rule without the empty word. They begin with a byte of
  /// `first`, and contain no ignored text.
  Symbol terminal(RuleId rule, std::string name, Scope scope, const ByteSet& first);

  /// Declares a rule, to be defined later.
  Symbol nonterminal();

  Expression symbol(Symbol symbol);
  Expression sequence(std::vector<Expression> parts);
  Expression choice(std::vector<Expression> parts);
  Expression repeat(Expression part, uint32_t min, uint32_t max);

  /// Defines the body of a rule. Several definitions are alternatives.
  void define(Symbol nonterminal, Expression body);

  /// Compiles the grammar; called once. Throws GrammarError if `start` has no word, ResourceLimit if the grammar is too
  /// large.
  Grammar build(Symbol start);

 private:
  friend class Compilation;
  friend class NetWriter;

  struct Terminal {
    AutomatonPtr language;
    std::string name;
    Scope scope = 0;
    ByteSet watched = {};
    bool ends_text = false;
  };
  struct Embedded {
    RuleId rule;
    std::string name;
    Scope scope;
    ByteSet first;
  };
  struct Text {
    Scope of, within;
    std::string name;
  };
  struct Part {
    std::string name;
    Symbol root = 0;  ///< the rule of its texts
    std::vector<AutomatonPtr> ignored;
  };
  struct Term {
    enum Kind { symbol, sequence, choice, repeat } kind;
    Symbol of = 0;
    uint32_t min = 0, max = 0;
    std::vector<Expression> parts;
  };
  struct Definition {
    Symbol symbol;
    Expression body;
  };

  Expression add(Term term);
  void check(Symbol symbol) const;
  Part& part(Scope scope);

  static constexpr uint32_t kNoTerminal = 0xFFFFFFFFu, kEmbedded = kNoTerminal - 1;
  std::vector<uint32_t> terminal_of_;  ///< by symbol: index into terminals_
  std::vector<Terminal> terminals_;
  std::vector<Part> scopes_;
  std::map<Symbol, Text> texts_;
  std::map<Symbol, Embedded> embedded_terminals_;
  Grammar embedded_;
  bool built_ = false;
  std::vector<Term> terms_;
  std::vector<Definition> definitions_;
};

}  // namespace constrain::cfg
