#include "engine/grammar/nested_frames.h"

#include <algorithm>

#include "engine/base/deadline.h"

namespace constrain {

namespace {

/// Calls that are looked at; beyond that there is no bound.
constexpr uint64_t kMaxWork = 20'000'000;

}  // namespace

void NestedFrames::add(RuleId rule, std::span<const CompletionHints::NestedCall> calls, uint64_t most) {
  rules_[rule].most = most;
  rules_[rule].calls.assign(calls.begin(), calls.end());
  added_.push_back(rule);
  calls_ += calls.size();
}

std::vector<std::optional<uint64_t>> NestedFrames::pushed(const TokenReach& reach) {
  find_recursive();
  const uint64_t most_calls = multiply_lengths(reach.count(costly_starts()), add_lengths(longest_chain(), 1));
  std::vector<uint64_t> bytes(rules_.size()), more;
  for (RuleId rule = 0; rule < rules_.size(); ++rule) bytes[rule] = rules_[rule].most;
  spread(bytes);
  for (uint64_t calls = 0; calls < most_calls; ++calls) {
    Deadline::check();
    more = with_one_more(bytes);
    if (more == bytes) break;
    bytes.swap(more);
    if (calls * calls_ > kMaxWork) std::ranges::fill(bytes, kInfinite);
  }
  std::vector<std::optional<uint64_t>> pushed(rules_.size());
  for (const RuleId rule : added_) {
    uint64_t most = 0;
    for (const Call& call : rules_[rule].calls) most = std::max(most, bytes[call.callee]);
    pushed[rule] = most;
  }
  return pushed;
}

void NestedFrames::find_recursive() {
  std::vector<std::vector<RuleId>> callers(rules_.size()), callees(rules_.size());
  for (const RuleId rule : added_) {
    rules_[rule].recursive = true;
    for (const Call& call : rules_[rule].calls) {
      if (!has(call.callee)) continue;
      callers[call.callee].push_back(rule);
      callees[rule].push_back(call.callee);
    }
  }
  drop_ends(callers, callees);
  drop_ends(callees, callers);
}

/// Drops from the recursive rules, again and again, those that have none of them before them.
void NestedFrames::drop_ends(const std::vector<std::vector<RuleId>>& before,
                             const std::vector<std::vector<RuleId>>& after) {
  std::vector<size_t> left(rules_.size());
  std::vector<RuleId> ends;
  for (const RuleId rule : added_) {
    if (!rules_[rule].recursive) continue;
    for (const RuleId other : before[rule]) left[rule] += rules_[other].recursive;
    if (left[rule] == 0) ends.push_back(rule);
  }
  while (!ends.empty()) {
    const RuleId rule = ends.back();
    ends.pop_back();
    rules_[rule].recursive = false;
    for (const RuleId next : after[rule]) {
      if (rules_[next].recursive && --left[next] == 0) ends.push_back(next);
    }
  }
}

/// First bytes of the frames that make costly calls.
ByteSet NestedFrames::costly_starts() const {
  ByteSet bytes;
  for (const RuleId rule : added_) {
    for (const Call& call : rules_[rule].calls) {
      if (costly(rules_[rule], call)) bytes.add(call.first);
    }
  }
  return bytes;
}

/// Most costly calls that come first, one in the other.
uint64_t NestedFrames::longest_chain() const {
  std::vector<uint64_t> longest(rules_.size()), before;
  for (size_t round = 0; round <= added_.size(); ++round) {
    Deadline::check();
    before = longest;
    for (const RuleId rule : added_) {
      for (const Call& call : rules_[rule].calls) {
        if (!call.leading) continue;
        longest[rule] = std::max(longest[rule], longest[call.callee] + costly(rules_[rule], call));
      }
    }
    if (before == longest) return added_.empty() ? 0 : *std::ranges::max_element(longest);
  }
  return kInfinite;
}

/// Makes each rule need at least what its calls need that are not costly.
void NestedFrames::spread(std::vector<uint64_t>& bytes) const {
  for (bool changed = true; changed;) {
    Deadline::check();
    changed = false;
    for (const RuleId rule : added_) {
      for (const Call& call : rules_[rule].calls) {
        const uint64_t need = add_lengths(call.rest, bytes[call.callee]);
        if (costly(rules_[rule], call) || need <= bytes[rule]) continue;
        bytes[rule] = need;
        changed = true;
      }
    }
  }
}

/// Lets each rule make one more costly call.
std::vector<uint64_t> NestedFrames::with_one_more(const std::vector<uint64_t>& bytes) const {
  std::vector<uint64_t> more = bytes;
  for (const RuleId rule : added_) {
    for (const Call& call : rules_[rule].calls) {
      more[rule] = std::max(more[rule], add_lengths(call.rest, bytes[call.callee]));
    }
  }
  spread(more);
  return more;
}

}  // namespace constrain
