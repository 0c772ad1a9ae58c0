#include "engine/json/value_search.h"

#include "engine/automata/automaton.h"
#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/grammar/possible_bytes.h"

namespace constrain::json {

namespace {

/// Memory of a text in the queue, besides its bytes.
constexpr size_t kTextBytes = 160;

}  // namespace

ValueSearch::ValueSearch(const ParseTable& grammar, std::string typed, uint32_t base, PlainStyle style)
    : grammar_(grammar),
      typed_(std::move(typed)),
      style_(style),
      registers_(arena_, true),
      store_(grammar, arena_, true),
      stepper_(grammar, store_, registers_),
      costs_(grammar) {
  registers_.base = base;
  registers_.searching = true;
}

ValueSearch::ValueSearch(const ParseTable& grammar, const Configuration* item, std::string typed, uint32_t base,
                         PlainStyle style)
    : ValueSearch(grammar, std::move(typed), base, style) {
  queue_.push({costs_.of(item), "", 0, item});
}

ValueSearch::ValueSearch(const ParseTable& grammar, RuleId rule, std::string typed, PlainStyle style)
    : ValueSearch(grammar, std::move(typed), 1, style) {
  const Configuration* at = stepper_.advance(*store_.make(StackTop{grammar.entry(rule), 0, nullptr}), typed_);
  if (at) queue_.push({costs_.of(at), "", 0, at});
}

std::optional<ValueSearch::Found> ValueSearch::next() {
  while (!queue_.empty()) {
    Deadline::check();
    Node node = queue_.top();
    queue_.pop();
    if (!node.at && !make_next(node)) continue;
    const ItemText text(typed_ + node.added);
    expand(node, text);
    if (!node.at->accepting || !text.ends_plainly(typed_.size())) continue;
    std::string value = text.value();
    if (seen_.insert(value).second) return Found{std::move(value), node.length, node.added};
  }
  return std::nullopt;
}

/// Makes the next of several texts, and puts the others back. False if it has no end, or has to wait for its turn.
bool ValueSearch::make_next(Node& node) {
  const auto byte = static_cast<uint8_t>(node.added.back());
  if (const int next = node.last.next(byte + 1); next >= 0) {
    Node others = node;
    others.added.back() = static_cast<char>(next);
    queue_.push(std::move(others));
  }
  node.at = stepper_.advance(*node.before, byte);
  const uint64_t rest = node.at ? costs_.of(node.at) : kInfinite;
  if (rest == kInfinite) return false;
  if (++nodes_ > kSearchBudget) {
    throw ResourceLimit("search_states", kSearchBudget, "while looking for a value that an array does not have yet");
  }
  memory_.add(kTextBytes + node.added.size());
  node.is_unlikely = false;
  if (node.length + rest <= node.estimate) return true;
  node.estimate = node.length + rest;
  queue_.push(std::move(node));
  return false;
}

void ValueSearch::expand(const Node& node, const ItemText& text) {
  const ByteSet possible = possible_bytes(grammar_, *node.at);
  ByteSet likely, spaces, others;
  for (const StackTop& top : node.at->tops()) likely.add(grammar_.likely_bytes(top.state, top.reg));
  for (int byte = possible.next(0); byte >= 0; byte = possible.next(byte + 1)) {
    const auto character = static_cast<char>(byte);
    if (!text.goes_on_plainly(character, typed_.size(), style_)) continue;
    const bool counts = text.in_string() || character != ' ';
    (counts ? others : spaces).add(static_cast<uint8_t>(byte));
  }
  add(node, spaces, node.length, false);
  add(node, others & likely, node.length + 1, false);
  add(node, others & ~likely, node.length + 1, true);
}

/// Adds the texts that a byte makes of another one; none is shorter in the end.
void ValueSearch::add(const Node& before, const ByteSet& bytes, uint64_t length, bool is_unlikely) {
  const int first = bytes.next(0);
  if (first < 0) return;
  queue_.push(
      {before.estimate, before.added + static_cast<char>(first), length, nullptr, before.at, bytes, is_unlikely});
}

}  // namespace constrain::json
