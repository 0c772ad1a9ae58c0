#include "engine/cfg/cfg_writer.h"

namespace constrain::cfg {

namespace {

constexpr uint32_t kUnrolled = 8;  ///< repetitions up to this many are unrolled

}  // namespace

NetWriter::NetWriter(const Builder& builder) : builder_(builder), nets_(builder.terminal_of_.size()) {
  for (size_t symbol = 0; symbol < nets_.size(); ++symbol) {
    if (builder.terminal_of_[symbol] == Builder::kNoTerminal) nets_[symbol].node(), nets_[symbol].node();
  }
  for (const auto& definition : builder.definitions_) {
    write({definition.symbol, definition.body, 0, 1});
  }
}

Symbol NetWriter::new_rule() {
  nets_.emplace_back();
  nets_.back().node(), nets_.back().node();
  return static_cast<Symbol>(nets_.size() - 1);
}

/// Compiles expressions to nets. Uses a work list, because grammars may nest deeper than the stack.
void NetWriter::write(Task first) {
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

void NetWriter::write_sequence(const Task& task, const std::vector<Expression>& parts) {
  Net& net = nets_[task.rule];
  Net::Node at = task.from;
  for (const Expression part : parts) {
    const Net::Node next = net.node();
    tasks_.push_back({task.rule, part, at, next});
    at = next;
  }
  net.jump(at, task.to);
}

void NetWriter::write_loop(const Task& task, Expression part, uint32_t min) {
  const uint32_t before = min > 0 ? min - 1 : 0;
  const Net::Node at = repeat(task.rule, part, before, before, task.from);
  Net& net = nets_[task.rule];
  const Net::Node begin = net.node(), end = net.node();
  net.jump(at, begin), net.jump(end, begin), net.jump(end, task.to);
  if (min == 0) net.jump(begin, task.to);
  tasks_.push_back({task.rule, part, begin, end});
}

/// Repeats `part` between `min` and `max` times from `at` on; returns the end node. Beyond a few words, all but the
/// first become a counted rule. The first stays outside, so that no rule begins with a counted one, and left recursion
/// cannot lead through it.
Net::Node NetWriter::repeat(Symbol rule, Expression part, uint32_t min, uint32_t max, Net::Node at) {
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

Net::Node NetWriter::count(Symbol rule, Symbol element, uint32_t min, uint32_t max, Net::Node at) {
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

Symbol NetWriter::as_symbol(Expression expression) {
  const auto& term = builder_.terms_[expression];
  if (term.kind == Builder::Term::symbol) return term.of;
  const auto [it, added] = elements_.try_emplace(expression, 0);
  if (added) {
    it->second = new_rule();
    tasks_.push_back({it->second, expression, 0, 1});
  }
  return it->second;
}

void NetWriter::write_out_empty_elements(std::vector<bool>& nullable) {
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

}  // namespace constrain::cfg
