#include "engine/cfg/cfg_rule.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

#include "engine/base/deadline.h"

namespace constrain::cfg {

void BodyRule::add_callees(std::vector<RuleId>& out) const {
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  for (const Body::State& state : body_.states) {
    for (const Edge& edge : state.edges) out.push_back(edge.symbol);
  }
  std::sort(out.begin() + first, out.end());
  out.erase(std::unique(out.begin() + first, out.end()), out.end());
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

uint64_t BodyRule::max_remaining(RuleBounds&) {
  uint64_t most = 0;
  for (const uint64_t bytes : remaining_) most = std::max(most, bytes == kInfinite ? 0 : bytes);
  return most;
}

/// After the next token the frame may be in any later state.
CompletionHints::Outlay BodyRule::max_outlay(Local state, Reg, uint64_t, RuleBounds&) {
  const std::vector<bool> later = reached(static_cast<uint32_t>(state));
  uint64_t most = 0;
  for (size_t at = 0; at < later.size(); ++at) {
    if (later[at] && remaining_[at] != kInfinite) most = std::max(most, remaining_[at]);
  }
  return {most, 0, true};
}

std::vector<CompletionHints::NestedCall> BodyRule::nested_calls(RuleBounds& bounds) const {
  const auto possible = [&](const Edge& edge) {
    return bounds.lengths()[edge.symbol] != kInfinite && remaining_[edge.target] != kInfinite;
  };
  std::vector<NestedCall> calls;
  std::map<uint32_t, ByteSet> begun;  // first bytes of the words that lead to a state
  for (const Edge& edge : body_.states.front().edges) {
    if (!possible(edge)) continue;
    calls.push_back({edge.symbol, remaining_[edge.target], bounds.first_bytes(edge.symbol), true});
    begun[edge.target].add(calls.back().first);
  }
  std::vector<ByteSet> first(body_.states.size());
  for (const auto& [target, bytes] : begun) {
    const std::vector<bool> later = reached(target);
    for (size_t at = 0; at < later.size(); ++at) {
      if (later[at]) first[at].add(bytes);
    }
  }
  for (size_t at = 1; at < body_.states.size(); ++at) {
    for (const Edge& edge : body_.states[at].edges) {
      if (possible(edge)) calls.push_back({edge.symbol, remaining_[edge.target], first[at], false});
    }
  }
  return calls;
}

/// The states from which a frame may go on after it was in `from`, with that.
std::vector<bool> BodyRule::reached(uint32_t from) const {
  Deadline::check();
  std::vector<bool> reached(body_.states.size());
  std::vector<uint32_t> pending{from};
  reached[from] = true;
  while (!pending.empty()) {
    const Body::State& state = body_.states[pending.back()];
    pending.pop_back();
    for (const Edge& edge : state.edges) {
      if (reached[edge.target]) continue;
      reached[edge.target] = true;
      pending.push_back(edge.target);
    }
  }
  return reached;
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

uint64_t CountedRule::max_remaining(RuleBounds& bounds) { return remaining(kStart, 0, bounds.lengths()); }

CompletionHints::Outlay CountedRule::max_outlay(Local, Reg, uint64_t now, RuleBounds&) { return {now, 0, true}; }

std::vector<CompletionHints::NestedCall> CountedRule::nested_calls(RuleBounds& bounds) const {
  const ByteSet first = bounds.first_bytes(element_);
  const auto rest = [&](uint64_t words) {
    return multiply_lengths(min_ - std::min(min_, words), bounds.lengths()[element_]);
  };
  return {{element_, rest(1), first, true}, {element_, rest(2), first, false}};
}

}  // namespace constrain::cfg
