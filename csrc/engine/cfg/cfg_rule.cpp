#include "engine/cfg/cfg_rule.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace constrain::cfg {

std::vector<RuleId> BodyRule::callees() const {
  std::vector<RuleId> result;
  for (const Body::State& state : body_.states) {
    for (const Edge& edge : state.edges) result.push_back(edge.symbol);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

void BodyRule::expand(Local state, const Lengths& lengths, Expansion& out) {
  out.accepting = body_.states[state].accepting;
  for (const Edge& edge : body_.states[state].edges) {
    if (lengths[edge.symbol] != kInfinite && remaining_[edge.target] != kInfinite) out.call(edge.symbol, edge.target);
  }
}

uint64_t BodyRule::remaining(Local state, Reg, const Lengths& lengths) {
  return remaining_.empty() ? measure(lengths)[state] : remaining_[state];
}

/// Dijkstra's algorithm, backwards from the accepting states.
std::vector<uint64_t> BodyRule::measure(const Lengths& lengths) const {
  struct Step {
    uint32_t from;
    uint64_t length;
  };
  using Entry = std::pair<uint64_t, uint32_t>;
  std::vector<std::vector<Step>> before(body_.states.size());
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
  std::vector<uint64_t> result(body_.states.size(), kInfinite);
  for (uint32_t state = 0; state < body_.states.size(); ++state) {
    for (const Edge& edge : body_.states[state].edges) before[edge.target].push_back({state, lengths[edge.symbol]});
    if (body_.states[state].accepting) result[state] = 0, queue.push({0, state});
  }
  while (!queue.empty()) {
    const auto [length, state] = queue.top();
    queue.pop();
    if (length > result[state]) continue;
    for (const Step& step : before[state]) {
      const uint64_t total = add_lengths(length, step.length);
      if (total < result[step.from]) result[step.from] = total, queue.push({total, step.from});
    }
  }
  return result;
}

void CountedRule::expand(Local state, const Lengths& lengths, Expansion& out) {
  out.accepting = state == kEnough;
  if (lengths[element_] == kInfinite) return;
  if (state == kStart) out.call(element_, after_first());
  if (state == kFewer) out.call(element_, kFewer, kStillFewer), out.call(element_, kEnough, kNowEnough);
  if (state == kEnough && max_ > 1) out.call(element_, kEnough, kOneMore);
}

bool CountedRule::apply(Guard guard, uint8_t, Reg& reg, Registers&) const {
  const uint64_t begun = reg + 2;  // including the word that this edge begins
  const bool allowed = guard == kStillFewer ? begun < min_ : guard == kNowEnough ? begun == min_ : begun <= max_;
  if (allowed) ++reg;
  return allowed;
}

bool CountedRule::describe(Local, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  out.push_back(max_ == kInfinite ? horizon + 1 : std::min(max_ - reg, horizon + 1));
  out.push_back(min_ > reg ? std::min(min_ - reg, horizon + 1) : 0);
  return true;
}

uint64_t CountedRule::remaining(Local state, Reg reg, const Lengths& lengths) {
  const uint64_t missing = state == kStart ? min_ : state == kFewer ? min_ - (reg + 1) : 0;
  const uint64_t length = lengths[element_];
  if (missing == 0) return 0;
  return length > kInfinite / missing ? kInfinite : length * missing;
}

}  // namespace constrain::cfg
