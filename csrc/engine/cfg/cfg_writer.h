// From the expressions of a builder's rules to nets.
#pragma once

#include <map>
#include <vector>

#include "engine/cfg/cfg.h"
#include "engine/cfg/cfg_normal.h"

namespace constrain::cfg {

/// Between `min` and `max` words of one symbol, which are counted instead of being written out.
struct Count {
  Symbol element;
  uint32_t min, max;
};

/// Writes the definitions of a builder into nets, with further rules for parts of them.
class NetWriter {
 public:
  explicit NetWriter(const Builder& builder);

  /// By symbol.
  const Nets& nets() const { return nets_; }

  /// Rules that are counted.
  const std::map<Symbol, Count>& counted() const { return counted_; }

  /// Words that may be empty need no lower bound, and cannot be counted: the empty ones take no step. Their repetitions
  /// are written out by doubling. New rules are added to `nullable`.
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
