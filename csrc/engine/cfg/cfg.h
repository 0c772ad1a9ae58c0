// Context-free grammars over regular terminals, brought into the form that the engine runs.
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

/// A grammar with ignored text of its own. Whole texts are of grammar 0; others may stand within, as words do.
using Scope = uint32_t;

inline constexpr uint32_t kUnbounded = 0xFFFFFFFFu;

/// Collects the rules of a grammar, and turns them into rules of the engine with the same language. Rules may be
/// ambiguous, nullable, and recursive in every way.
///
/// Ignored text may stand before, between and after terminals: any sequence of words of the `ignore`d languages. Each
/// takes the longest word it can, as a lexer would (see lexeme.h).
///
/// Everything that is named must have been made before; a GrammarError is thrown where it was not.
class Builder {
 public:
  Builder() : scopes_(1) {}

  /// A further grammar. `name` is for error messages, here and below.
  Scope scope(std::string name);

  /// The words of a rule of a further grammar are its texts, with its ignored text around them.
  void start(Scope scope, Symbol symbol);

  /// A rule of the grammar `within`, whose words are the texts of a further one. They are words like those of
  /// terminals: ignored text stands around them, not inside, and what their terminals look at ends where they end.
  Symbol text(Scope scope, Scope within, std::string name);

  /// What follows the terminal must not begin with a byte of `watched`: the language is another one there. Throws
  /// GrammarError where the language has the empty word.
  Symbol terminal(AutomatonPtr language, std::string name, Scope scope = 0, const ByteSet& watched = {});
  /// The text is over after the terminal: `build` throws GrammarError where something may follow it.
  void ends_text(Symbol terminal);
  void ignore(AutomatonPtr language, std::string name, Scope scope = 0);

  /// Rules of other front ends. They call one another, and keep their numbers in the grammar that is built.
  Grammar& embedded() { return embedded_; }

  /// A terminal whose words are those of an embedded rule, which has not the empty one. They begin with a byte of
  /// `first`, and there is no ignored text within them.
  Symbol terminal(RuleId rule, std::string name, Scope scope, const ByteSet& first);

  /// A rule that is yet to be defined.
  Symbol nonterminal();

  Expression symbol(Symbol symbol);
  Expression sequence(std::vector<Expression> parts);
  Expression choice(std::vector<Expression> parts);
  Expression repeat(Expression part, uint32_t min, uint32_t max);

  /// Gives a rule its body. Several definitions of one rule are alternatives.
  void define(Symbol nonterminal, Expression body);

  /// To be called once. Throws GrammarError where `start` has no word, ResourceLimit where the grammar is too large.
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
    Symbol root = 0;  ///< a rule for its texts
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
