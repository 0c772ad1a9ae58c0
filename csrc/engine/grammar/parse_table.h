// A grammar made ready to run: states of all rules in one numbering, and transition rows built on first use.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/arena.h"
#include "engine/base/interner.h"
#include "engine/base/memory_account.h"
#include "engine/base/stable_vector.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/row.h"
#include "engine/grammar/rule.h"
#include "engine/grammar/rule_bounds.h"
#include "engine/text/token_reach.h"

namespace constrain {

/// Length of a frame's cache key: see MaskHints.
enum class Detail { outline, full };

/// Properties of a vocabulary that rules depend on.
struct TokenSizes {
  uint16_t longest = 0;  ///< bytes of the longest token
  TokenReach reach;
  std::shared_ptr<const std::unordered_set<std::string>> quoted;  ///< JSON strings within tokens
};

/// The lazily built LL parse table of a grammar: every state of every rule, with its transition row. Threads share it;
/// rows are built under a lock and read without one.
class ParseTable {
 public:
  /// Throws EmptyLanguage.
  ParseTable(Grammar grammar, TokenSizes tokens, const Limits& limits);
  ParseTable(const ParseTable&) = delete;
  ParseTable& operator=(const ParseTable&) = delete;

  const TokenSizes& tokens() const { return tokens_; }
  const Limits& limits() const { return limits_; }
  StateId start() const { return start_; }

  /// Calls Rule::union_of.
  std::span<const RuleId> union_of(RuleId rule) const { return grammar_.rules[rule]->union_of(); }

  /// True if some texts depend on their nesting depth. Lengths leave out the spaces of indented lines.
  bool uses_depth() const { return uses_depth_; }

  /// True if CompletionHints::is_remaining_exact holds for all rules.
  bool is_remaining_exact() const { return remaining_exact_; }

  /// True if CompletionHints::is_remaining_least holds for all rules.
  bool is_remaining_least() const { return remaining_least_; }

  const Row& row(StateId state) const {
    const Row* row = slot(state).row.load(std::memory_order_acquire);
    return row ? *row : build(state);
  }

  /// Evaluates a guard of a state's rule.
  bool apply(StateId state, Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
    return slot(state).rule->apply(guard, byte, reg, registers);
  }

  /// Calls MaskHints::wildcard_region of a frame.
  WildcardRegion wildcard_region(StateId state, Reg reg) const;

  /// Calls MaskHints::skip_wildcard of a frame.
  bool skip_wildcard(StateId state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) const;

  /// Calls MaskHints::open_words of a frame.
  std::optional<OpenWords> open_words(StateId state, Reg reg) const {
    const Slot& slot = this->slot(state);
    return slot.rule ? slot.rule->mask_hints().open_words(slot.local, reg) : std::nullopt;
  }

  /// Appends a cache key of a frame: its state, the depth of its stack if rules use that, and MaskHints::outline or
  /// MaskHints::describe of its register. An outline is used if `detail` permits and there is one. Every key begins
  /// with its own length.
  bool describe(StateId state, Reg reg, uint32_t depth, Detail detail, std::vector<uint64_t>& out) const;

  /// The rule of a state; null for kDone.
  const Rule* rule(StateId state) const { return slot(state).rule; }

  /// Writes a key that holds in all grammars over the vocabulary; false if the rule has no portable_id.
  bool describe_portably(StateId state, Reg reg, std::vector<uint64_t>& out) const;

  /// Calls MaskHints::shares_registers for two states of one rule.
  bool shares_registers(StateId from, StateId to) const {
    return slot(from).rule->mask_hints().shares_registers(slot(from).local, slot(to).local);
  }

  /// True if two frames of one rule share registers, and have the same one. Either is a StackTop.
  template <class Top>
  bool same_register(const Top& one, const Top& other) const {
    return shares_registers(one.state, other.state) &&
           slot(one.state).rule->mask_hints().same_register(one.reg, other.reg);
  }

  /// Calls CompletionHints::max_growth of a frame.
  uint64_t max_growth(StateId state, Reg reg) const;

  /// Bounds of RuleBounds on a frame, with all the frames that one token may push on it: for any state of its rule, or
  /// for this one if it is `measured`.
  FrameBounds frame_bounds(StateId state, Reg reg, bool measured) const;

  /// Bounds of RuleBounds: for a frame in `state`, and for top frames after `masks` masks were built.
  uint64_t max_waiting(StateId state) const;
  uint64_t max_on_top(uint64_t masks) const;
  uint64_t max_on_top(StateId state) const;
  uint64_t max_to_differ(StateId state) const;

  /// Calls CompletionHints::embedded of a frame.
  std::optional<const Configuration*> embedded(StateId state, Reg reg) const;

  /// Calls CompletionHints::as_call of a frame: replaces it by one that waits, and returns what it calls; null if none.
  const Configuration* make_call(StateId& state, Reg& reg, Registers& registers) const;

  /// Calls CompletionHints::ending of a frame.
  Reg ending(StateId state, Reg reg, Registers& registers) const;

  /// A call with which the texts of a frame may go on.
  struct Call {
    StateId entry, then;  ///< the start of what is called, and the state of the frame after it
  };
  /// The calls of a state that has no other edges; none if it has, or if one of them is guarded or may be empty.
  std::vector<Call> calls(StateId state) const;

  /// Calls CompletionHints::likely_bytes of a frame.
  ByteSet likely_bytes(StateId state, Reg reg) const;
  /// Calls CompletionHints::known_bytes of a frame.
  ByteSet known_bytes(StateId state, Reg reg) const;

  /// Fewest bytes from a state to the end of its rule.
  uint64_t remaining(StateId state, Reg reg) const;

  /// A rule, which is prepared if it was not. Called under the lock.
  Rule& prepared(RuleId rule) const;

  /// Start state of a rule.
  StateId entry(RuleId rule) const;

  /// Calls CompletionHints::count_values of a state, and of a rule's start.
  uint64_t count_values(StateId state, Reg reg) const;
  uint64_t count_values_of(RuleId rule) const;

  /// Locks the grammar, for rules that grow tables of their own.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(mutex_); }

  size_t states() const { return slots_.size(); }

  /// Transition rows built so far.
  uint64_t rows() const { return row_count_; }

  /// Approximate memory of the rules, states and rows.
  size_t bytes() const { return account_ ? account_->bytes() : 0; }

 private:
  friend class RowMaker;

  struct Slot {
    Rule* rule = nullptr;
    RuleId id = 0;
    Local local = 0;
    std::atomic<const Row*> row{nullptr};
    enum class Final : uint8_t { unknown, no, yes } final = Final::unknown;
  };

  /// Measures the rules, and restarts the numbering of states.
  void begin();

  Slot& slot(StateId state) const { return slots_[state]; }

  /// What `question` answers about a state, asked under the lock; `done` for kDone, which has no rule.
  template <class Answer, class Question>
  Answer ask(StateId state, Answer done, const Question& question) const {
    if (state == kDone) return done;
    const auto lock = this->lock();
    return question(slot(state));
  }

  RuleBounds& bounds() const;
  const Row& build(StateId state) const;
  StateId intern(RuleId rule, Local local) const;
  bool is_final(StateId state) const;

  Grammar grammar_;
  TokenSizes tokens_;
  Limits limits_;
  Lengths lengths_;
  StateId start_ = kDone;
  bool uses_depth_ = false, remaining_exact_ = true, remaining_least_ = true;

  std::shared_ptr<MemoryAccount> account_ = MemoryAccount::current();
  mutable std::vector<bool> prepared_;  // by rule
  mutable std::recursive_mutex mutex_;  // recursive, because rules that embed configurations call back
  mutable MemoryShare memory_;          // memory of the rows and the states
  mutable Arena rows_;
  mutable std::optional<SequenceInterner> ranges_;  // of bytes, by the number of a row's numbers
  mutable std::vector<const Row::Numbers*> numbers_;
  mutable StableVector<Slot> slots_;
  mutable std::optional<SequenceInterner> places_;  // the rules and their own states, by number
  mutable std::unordered_map<RuleId, uint64_t> varieties_;
  mutable std::unique_ptr<RuleBounds> bounds_;
  mutable std::atomic<uint64_t> row_count_{0};
};

}  // namespace constrain
