// The builder interface for context-free grammars.
#include <string>
#include <utility>

#include "engine/base/errors.h"
#include "engine/cfg/cfg.h"

namespace constrain::cfg {

Scope Builder::scope(std::string name) {
  scopes_.push_back({std::move(name), nonterminal(), {}});
  return static_cast<Scope>(scopes_.size() - 1);
}

Builder::Part& Builder::part(Scope scope) {
  if (scope >= scopes_.size()) throw GrammarError("there is no grammar " + std::to_string(scope));
  return scopes_[scope];
}

void Builder::start(Scope scope, Symbol symbol) {
  if (scope == 0) throw GrammarError("the start of whole texts is told when the grammar is built");
  define(part(scope).root, this->symbol(symbol));
}

Symbol Builder::text(Scope scope, Scope within, std::string name) {
  if (scope == 0) throw GrammarError("whole texts do not stand within others");
  const Expression body = symbol(part(scope).root);
  part(within);
  const Symbol text = nonterminal();
  define(text, body);
  texts_[text] = {scope, within, std::move(name)};
  return text;
}

Symbol Builder::terminal(AutomatonPtr language, std::string name, Scope scope, const ByteSet& watched) {
  part(scope);
  if (language->start() != kDead && language->accepting(language->start())) {
    throw GrammarError("terminal '" + name + "' matches the empty text");
  }
  if (language->start() == kDead && watched != ByteSet()) {
    throw GrammarError("terminal '" + name + "' cannot be used: it matches only before some text that is not its own");
  }
  terminal_of_.push_back(static_cast<uint32_t>(terminals_.size()));
  terminals_.push_back({std::move(language), std::move(name), scope, watched});
  return static_cast<Symbol>(terminal_of_.size() - 1);
}

void Builder::ends_text(Symbol terminal) {
  check(terminal);
  if (terminal_of_[terminal] >= kEmbedded) throw GrammarError("a rule of the grammar does not end texts");
  terminals_[terminal_of_[terminal]].ends_text = true;
}

void Builder::ignore(AutomatonPtr language, std::string name, Scope scope) {
  Part& part = this->part(scope);
  if (language->start() == kDead) return;
  if (language->accepting(language->start())) throw GrammarError("ignored text '" + name + "' matches the empty text");
  part.ignored.push_back(std::move(language));
}

Symbol Builder::terminal(RuleId rule, std::string name, Scope scope, const ByteSet& first) {
  part(scope);
  terminal_of_.push_back(kEmbedded);
  const auto symbol = static_cast<Symbol>(terminal_of_.size() - 1);
  embedded_terminals_[symbol] = {rule, std::move(name), scope, first};
  return symbol;
}

Symbol Builder::nonterminal() {
  terminal_of_.push_back(kNoTerminal);
  return static_cast<Symbol>(terminal_of_.size() - 1);
}

void Builder::check(Symbol symbol) const {
  if (symbol >= terminal_of_.size()) throw GrammarError("there is no symbol " + std::to_string(symbol));
}

Expression Builder::add(Term term) {
  for (const Expression part : term.parts) {
    if (part >= terms_.size()) throw GrammarError("there is no expression " + std::to_string(part));
  }
  terms_.push_back(std::move(term));
  return static_cast<Expression>(terms_.size() - 1);
}

Expression Builder::symbol(Symbol symbol) {
  check(symbol);
  return add({Term::symbol, symbol, 0, 0, {}});
}
Expression Builder::sequence(std::vector<Expression> parts) { return add({Term::sequence, 0, 0, 0, std::move(parts)}); }
Expression Builder::choice(std::vector<Expression> parts) { return add({Term::choice, 0, 0, 0, std::move(parts)}); }
Expression Builder::repeat(Expression part, uint32_t min, uint32_t max) {
  if (min > max)
    throw GrammarError("a repetition cannot be at least " + std::to_string(min) + " and at most " +
                       std::to_string(max));
  return add({Term::repeat, 0, min, max, {part}});
}

void Builder::define(Symbol nonterminal, Expression body) {
  check(nonterminal);
  if (terminal_of_[nonterminal] != kNoTerminal) throw GrammarError("a terminal has no other definition");
  if (body >= terms_.size()) throw GrammarError("there is no expression " + std::to_string(body));
  definitions_.push_back({nonterminal, body});
}

}  // namespace constrain::cfg
