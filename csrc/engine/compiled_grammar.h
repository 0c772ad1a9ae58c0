// A grammar made ready to run: states of all rules in one numbering, and their transitions, built when first needed.
#pragma once

#include <atomic>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/arena.h"
#include "engine/memory_account.h"
#include "engine/row.h"
#include "engine/rule.h"
#include "engine/rule_bounds.h"
#include "engine/stable_vector.h"
#include "engine/vocabulary.h"

namespace constrain {

/// Bounds on what untrusted grammars and schemas may cost; reaching one throws ResourceLimit.
struct Limits {
  uint64_t max_states = 500'000;      ///< states of all rules of a grammar
  uint64_t max_stack_depth = 10'000;  ///< nested frames
  uint64_t max_frames = 4'096;        ///< simultaneous readings of the text so far
  uint64_t max_work = 4'000'000;      ///< frames made for one byte or one mask
  uint64_t max_nesting = 512;         ///< depth of a schema
  uint64_t max_cells = 20'000;        ///< alternatives of a schema after normalisation
  uint64_t max_bytes = 16 << 20;      ///< of the text of a schema
  uint64_t max_seconds = 10;          ///< of compiling, and of each mask and token
  uint64_t max_memory = 512 << 20;    ///< bytes of the states of a grammar, masks not counted
  uint64_t mask_bytes = 32 << 20;     ///< of masks that are kept for a grammar; older ones are forgotten
};

/// How closely a frame is described.
enum class Detail { outline, full };

/// What is known of the masks of a key: the mask, or how the key has to go on.
struct KnownMask {
  enum class Next : uint8_t {
    done,   ///< `mask` it is
    fully,  ///< with full descriptions of the frames whose outlines came last
    below   ///< with the outlines of the frames below
  };
  Next next = Next::done;
  MaskPtr mask;
};

/// Masks by the descriptions of the frames they depend on, from the top down.
using MaskCache = LruCache<KnownMask>;

/// How often what was done, for those who look for what is slow.
struct MaskCounters {
  std::atomic<uint64_t> found{0};    ///< masks taken from the grammar's cache
  std::atomic<uint64_t> built{0};    ///< masks put together
  std::atomic<uint64_t> inners{0};   ///< frames walked alone
  std::atomic<uint64_t> visited{0};  ///< nodes of tries looked at
  std::atomic<uint64_t> rows{0};     ///< transition rows made
};

class BudgetedMasks;

/// An immutable language over a vocabulary; threads share it. Rows are built under a lock and read without one.
class CompiledGrammar {
 public:
  /// Throws EmptyLanguage.
  CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  std::shared_ptr<const Vocabulary> shared_vocabulary() const { return vocabulary_; }
  const Limits& limits() const { return limits_; }
  StateId start() const { return start_; }

  /// Texts depend on how deep they are nested: the spaces of their lines are no part of lengths.
  bool uses_depth() const { return uses_depth_; }

  /// Rule::measures_exactly of all rules.
  bool measures_exactly() const { return measures_exactly_; }

  const Row& row(StateId state) const {
    const Row* row = slot(state).row.load(std::memory_order_acquire);
    return row ? *row : build(state);
  }

  /// No text takes more tokens than it has bytes, all of which are counted.
  bool bytes_bound_tokens() const { return vocabulary_->spells_all() && !uses_depth_ && measures_exactly_; }

  /// Evaluates a guard of a state's rule.
  bool apply(StateId state, Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
    return slot(state).rule->apply(guard, byte, reg, registers);
  }

  /// Rule::free_text of a frame.
  FreeText free_text(StateId state, Reg reg) const;

  /// Rule::pass_text of a frame.
  bool pass_text(StateId state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) const;

  /// Rule::describe of a frame, or Rule::outline where that is all that is asked for and there is one, together with
  /// what names the state and, where rules ask for it, the depth below it. Every description tells its own length.
  bool describe(StateId state, Reg reg, uint32_t depth, Detail detail, std::vector<uint64_t>& out) const;

  /// The rule of a state; null for kDone.
  const Rule* rule(StateId state) const { return slot(state).rule; }

  /// The same in terms that hold in all grammars over the vocabulary; false where there are none.
  bool describe_portably(StateId state, Reg reg, std::vector<uint64_t>& out) const;

  /// What was computed for masks, and how much of it.
  MaskCache& masks() const { return masks_; }
  InnerCache& inners() const { return inners_; }
  MaskCounters& counters() const { return counters_; }

  /// What texts under budgets share; a new one where the last is full.
  std::shared_ptr<BudgetedMasks> budgeted() const;

  /// Rule::fits for two states of one rule.
  bool fits(StateId from, StateId to) const { return slot(from).rule->fits(slot(from).local, slot(to).local); }

  /// Rule::growth of a frame.
  uint64_t growth(StateId state, Reg reg) const;

  /// RuleBounds of a frame of a state, and of those on top.
  uint64_t most_waiting(StateId state) const;
  uint64_t most_opened(StateId state) const;
  uint64_t most_on_top() const;
  uint64_t most_on_top(StateId state) const;

  /// Rule::inside of a frame.
  std::optional<const Configuration*> inside(StateId state, Reg reg) const;

  /// Rule::likely of a frame.
  ByteSet likely(StateId state, Reg reg) const;

  /// Fewest bytes from a state to the end of its rule.
  uint64_t remaining(StateId state, Reg reg) const;

  /// Where a rule starts.
  StateId entry(RuleId rule) const;

  /// Rule::variety of a state, and of a rule as a whole.
  uint64_t variety(StateId state, Reg reg) const;
  uint64_t variety_of(RuleId rule) const;

  /// For rules that grow tables of their own.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(mutex_); }

  size_t states() const { return slots_.size(); }

  /// Memory that it takes by now, rules and caches included, about.
  size_t bytes() const;

 private:
  friend class RowMaker;

  struct Slot {
    Rule* rule = nullptr;
    RuleId id = 0;
    Local local = 0;
    std::atomic<const Row*> row{nullptr};
    enum class Final : uint8_t { unknown, no, yes } final = Final::unknown;
  };
  struct Place {
    RuleId rule;
    Local local;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const {
      return (place.local ^ place.rule * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull >> 8;
    }
  };

  /// Prepares the rules, and starts to number the states anew.
  void begin();

  Slot& slot(StateId state) const { return slots_[state]; }
  RuleBounds& bounds() const;
  const Row& build(StateId state) const;
  StateId intern(RuleId rule, Local local) const;
  bool is_final(StateId state) const;

  Grammar grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Limits limits_;
  Lengths lengths_;
  StateId start_ = kDone;
  bool uses_depth_ = false, measures_exactly_ = true;

  mutable MaskCache masks_;
  mutable InnerCache inners_;
  mutable MaskCounters counters_;

  std::shared_ptr<MemoryAccount> account_ = MemoryAccount::current();
  mutable std::recursive_mutex mutex_;  // rules that follow configurations come back to the grammar
  mutable MemoryShare memory_;          // of the rows and the states
  mutable Arena rows_;
  mutable StableVector<Slot> slots_;
  mutable std::pmr::monotonic_buffer_resource index_;
  mutable std::pmr::unordered_map<Place, StateId, PlaceHash> ids_{&index_};
  mutable std::unordered_map<RuleId, uint64_t> varieties_;
  mutable std::unique_ptr<RuleBounds> bounds_;
  mutable std::shared_ptr<BudgetedMasks> budgeted_;
};

}  // namespace constrain
