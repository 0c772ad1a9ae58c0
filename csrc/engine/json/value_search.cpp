#include "engine/json/value_search.h"

#include "engine/automata/automaton.h"
#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/grammar/possible_bytes.h"

namespace constrain::json {

ValueSearch::ValueSearch(const ParseTable& grammar, std::string typed, uint32_t base, PlainStyle style)
    : grammar_(grammar),
      typed_(std::move(typed)),
      style_(style),
      registers_(arena_, true),
      store_(grammar, arena_, true),
      costs_(grammar) {
  registers_.base = base;
  registers_.searching = true;
}

ValueSearch::ValueSearch(const ParseTable& grammar, const Configuration* item, std::string typed, uint32_t base,
                         PlainStyle style)
    : ValueSearch(grammar, std::move(typed), base, style) {
  add("", 0, item);
}

ValueSearch::ValueSearch(const ParseTable& grammar, RuleId rule, PlainStyle style)
    : ValueSearch(grammar, "", 1, style) {
  add("", 0, store_.make(StackTop{grammar.entry(rule), 0, nullptr}));
}

std::optional<ValueSearch::Found> ValueSearch::next() {
  while (!queue_.empty()) {
    Deadline::check();
    const Node node = queue_.top();
    queue_.pop();
    const ItemText text(typed_ + node.added);
    expand(node, text);
    if (!node.at->accepting || !text.ends_plainly(typed_.size())) continue;
    std::string value = text.value();
    if (seen_.insert(value).second) return Found{std::move(value), node.length, node.added};
  }
  return std::nullopt;
}

void ValueSearch::expand(const Node& node, const ItemText& text) {
  Stepper stepper(grammar_, store_, registers_);
  std::vector<StackTop> tops;
  const ByteSet possible = possible_bytes(grammar_, *node.at);
  for (int byte = possible.next(0); byte >= 0; byte = possible.next(byte + 1)) {
    const auto character = static_cast<char>(byte);
    if (!text.goes_on_plainly(character, typed_.size(), style_)) continue;
    store_.start_work();
    tops.clear();
    for (const StackTop& top : node.at->tops()) stepper.step(top, static_cast<uint8_t>(byte), tops);
    if (tops.empty()) continue;
    const bool counts = text.in_string() || character != ' ';
    add(node.added + character, node.length + (counts ? 1 : 0), store_.make(tops));
  }
}

void ValueSearch::add(std::string added, uint64_t length, const Configuration* at) {
  const uint64_t rest = costs_.of(at);
  if (rest == kInfinite) return;
  if (++nodes_ > kSearchBudget) {
    throw ResourceLimit("search_states", kSearchBudget, "while looking for a value that an array does not have yet");
  }
  queue_.push({length + rest, std::move(added), length, at});
}

}  // namespace constrain::json
