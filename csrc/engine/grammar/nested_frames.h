// Bounds the frames of context-free rules that one token may push.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/rule_hints.h"
#include "engine/text/token_reach.h"

namespace constrain {

/// The calls of the rules whose texts need not begin with a bracket.
///
/// The frames that a token pushes, and that are left after it, call one another in a chain. Each frame begins at a byte
/// of the token: at that of the frame before if its call comes first there, else at a later one. Calls that are not
/// recursive come once. So the recursive calls after which a frame needs more bytes, the *costly* ones, are at most as
/// many as the bytes by which such frames can begin, times the length of a chain of first calls.
class NestedFrames {
 public:
  explicit NestedFrames(size_t rules) : rules_(rules) {}

  /// Adds a rule, of which a frame needs at most `most` bytes.
  void add(RuleId rule, std::span<const CompletionHints::NestedCall> calls, uint64_t most);
  bool has(RuleId rule) const { return !rules_[rule].calls.empty(); }

  /// Bounds a call of another rule, and what that pushes.
  void set_other(RuleId rule, uint64_t bytes) { rules_[rule].most = bytes; }

  /// Most bytes of all frames together that a token pushes on a frame, by rule; none for others.
  std::vector<std::optional<uint64_t>> pushed(const TokenReach& reach);

 private:
  using Call = CompletionHints::NestedCall;
  struct Rule {
    std::vector<Call> calls;
    uint64_t most = 0;
    bool recursive = false;  // on a cycle of calls, or between two
  };

  void find_recursive();
  void drop_ends(const std::vector<std::vector<RuleId>>& before, const std::vector<std::vector<RuleId>>& after);
  bool costly(const Rule& rule, const Call& call) const {
    return call.rest > 0 && rule.recursive && rules_[call.callee].recursive;
  }
  ByteSet costly_starts() const;
  uint64_t longest_chain() const;
  void spread(std::vector<uint64_t>& bytes) const;
  std::vector<uint64_t> with_one_more(const std::vector<uint64_t>& bytes) const;

  std::vector<Rule> rules_;
  std::vector<RuleId> added_;
  size_t calls_ = 0;  // of all rules
};

}  // namespace constrain
