// Context-free grammars over regular terminals, brought into the form that the engine runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/automaton.h"
#include "engine/byte_set.h"
#include "engine/cfg_body.h"
#include "engine/rule.h"

namespace constrain::cfg {

/// A piece of a rule's body.
using Expression = uint32_t;

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
  /// `name` is for error messages. What follows the terminal must not begin with a byte of `watched`: the language is
  /// another one there. Throws GrammarError where the language has the empty word.
  Symbol terminal(AutomatonPtr language, std::string name, const ByteSet& watched = {});
  void ignore(AutomatonPtr language, std::string name);

  /// Rules of other front ends. They call one another, and keep their numbers in the grammar that is built.
  Grammar& embedded() { return embedded_; }

  /// A terminal whose words are those of an embedded rule, which has not the empty one. They begin with a byte of
  /// `first`, and there is no ignored text within them.
  Symbol terminal(RuleId rule, std::string name, const ByteSet& first);

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

  struct Terminal {
    AutomatonPtr language;
    std::string name;
    ByteSet watched = {};
  };
  struct Embedded {
    RuleId rule;
    std::string name;
    ByteSet first;
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

  static constexpr uint32_t kNoTerminal = 0xFFFFFFFFu, kEmbedded = kNoTerminal - 1;
  std::vector<uint32_t> terminal_of_;  ///< by symbol: index into terminals_
  std::vector<Terminal> terminals_, ignored_;
  std::map<Symbol, Embedded> embedded_terminals_;
  Grammar embedded_;
  bool built_ = false;
  std::vector<Term> terms_;
  std::vector<Definition> definitions_;
};

}  // namespace constrain::cfg
