// JSON strings of a regular language, with a maximum length.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/grammar/rule.h"

namespace constrain::json {

/// The strings of an automaton that have at most `max` Unicode scalar values. The register counts them, because the
/// product of the automaton with all lengths would be large.
class BoundedStringRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  /// `strings` uses minimal escapes (Escapes::minimal).
  BoundedStringRule(AutomatonPtr strings, uint64_t max)
      : strings_(std::move(strings)),
        max_(max),
        near_(strings_->farthest() == kInfinite ? kNear : strings_->farthest()) {}

  Local start() override { return strings_->start(); }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void prepare(const ParseTable& grammar, const Lengths& lengths) override;
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  WildcardRegion wildcard_region(Local state, Reg reg) override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  bool outline(Local state, Reg reg, std::vector<uint64_t>& out) const override;
  bool shares_registers(Local, Local) const override { return true; }
  uint64_t portable_id() const override { return strings_->shared_id() ? strings_->shared_id() | kBounded : 0; }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t max_remaining(RuleBounds&) override;
  uint64_t max_to_differ(RuleBounds&) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable& grammar) override;

 private:
  /// Packs a state: a state of the automaton and, above it, the progress in an escape sequence.
  enum Escape : uint64_t { kNone, kBackslash, kDigit1, kDigit2, kDigit3, kDigit4 };
  /// Guards: a flag, whether a character begins, and the fewest characters that must follow.
  static constexpr Guard kGuard = 1, kCounted = 2;
  static constexpr int kLeastShift = 2;

  /// Tells the strings of a shared automaton from those with a maximum length.
  static constexpr uint64_t kBounded = uint64_t{1} << 63;
  /// Outlines are enough while at most this many characters must follow, if more may have to.
  static constexpr uint64_t kNear = 16;
  /// Limits on counting values: the characters of a string, and the states visited.
  static constexpr uint64_t kCountedLength = 64;
  static constexpr size_t kCountedStates = 20'000;

  static Local encode(State state, uint64_t escape) { return escape << 32 | state; }
  static State state_of(Local local) { return static_cast<State>(local); }
  static uint64_t escape_of(Local local) { return local >> 32; }
  /// Calls `visit(first, last, target, counted)` for byte ranges with one target.
  template <class Visit>
  void for_each_edge(Local local, const Visit& visit);

  uint64_t least(Local local, uint64_t bound = 0);
  uint64_t shortest_within(Local local, uint64_t room);
  uint64_t count(Local local, uint64_t room);

  AutomatonPtr strings_;
  uint64_t max_;
  uint64_t near_;         // outlines are enough while at most this many characters must follow
  uint64_t horizon_ = 0;  // bytes of the longest token
  std::unordered_map<Local, uint64_t> least_, shortest_;
  std::map<std::pair<Local, uint64_t>, uint64_t> counts_;
  uint64_t most_least_ = 0;  // maximum of `least_`
  WildcardFinder texts_{[this](State state) -> const StateRow& { return strings_->row(state); },
                        [this](State state) { return least(state); },
                        [this](State state) { return strings_->accepting(state); }};
};

}  // namespace constrain::json
