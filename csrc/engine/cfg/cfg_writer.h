// Compilation of grammar expressions to nets.
#pragma once

#include <map>
#include <vector>

#include "engine/cfg/cfg.h"
#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

/// A counted repetition of one symbol.
struct Count {
  Symbol element;
  uint32_t min, max;
};

/// Compiles the definitions of a builder to nets, with further rules for parts of them.
class NetWriter {
 public:
  explicit NetWriter(const Builder& builder);

  /// The nets, by symbol.
  const Nets& nets() const { return nets_; }

  /// The counted rules.
  const std::map<Symbol, Count>& counted() const { return counted_; }

  /// Unrolls repetitions of nullable elements by doubling: these cannot be counted, because empty words take no step,
  /// and need no lower bound. New rules are added to `nullable`.
  void write_out_empty_elements(std::vector<bool>& nullable);

 private:
  struct Task {
    Symbol rule;
    Expression expression;
    Net::Node from, to;
  };

  Symbol new_rule();
  void write(Task first);
  void write_sequence(const Task& task, const std::vector<Expression>& parts);
  void write_loop(const Task& task, Expression part, uint32_t min);
  Net::Node repeat(Symbol rule, Expression part, uint32_t min, uint32_t max, Net::Node at);
  Net::Node count(Symbol rule, Symbol element, uint32_t min, uint32_t max, Net::Node at);
  Symbol as_symbol(Expression expression);

  const Builder& builder_;
  Nets nets_;
  std::vector<Task> tasks_;
  std::map<Symbol, Count> counted_;
  std::map<Expression, Symbol> elements_;
};

}  // namespace constrain::cfg
