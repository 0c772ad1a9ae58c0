// Computes token masks within a budget: tokens after which the text can still be completed in time.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/lru_cache.h"
#include "engine/completion/completion_bounds.h"
#include "engine/completion/completions.h"
#include "engine/completion/counted_text.h"
#include "engine/completion/usual_text.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/trie_walk.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Computes masks that leave enough of a budget to complete the text. Results are shared by all texts of a grammar.
///
/// A token is allowed if the shortest completion after it still fits. The first token of the current completion always
/// fits, so a text whose completion fits at the start can be completed whichever allowed tokens are sampled. If tokens
/// lead to too many different completions to measure, the longest are allowed only if one token for each byte would
/// fit; if they take too much work to walk, the last are refused.
///
/// Threads share it: callers of anything but `full` hold `mutex`. Its configurations are its own; those of a matcher
/// are mapped to them by replaying the text.
class BudgetedMasks final : public SharedStage {
 public:
  explicit BudgetedMasks(const CompiledGrammar& grammar);

  /// Returns the instance of a grammar; a new one if the last is full.
  static std::shared_ptr<BudgetedMasks> shared(const CompiledGrammar& grammar);

  std::mutex mutex;

  const Configuration& start() const { return *start_; }

  /// Advances a configuration over bytes that it accepts.
  const Configuration& after(const Configuration& from, std::string_view bytes);

  /// Tokens of the shortest completion. Throws VocabularyError if it is not tokenizable.
  uint64_t tokens(const Configuration& from);

  /// True if the completion has at most `budget` tokens; cheaper than `tokens`.
  bool fits(const Configuration& from, uint64_t budget);

  /// Bytes of the shortest completion.
  std::string completion(const Configuration& from);

  /// Returns the tokens that leave a completion of at most `budget` tokens, and perhaps some that may not come next;
  /// null if every token does. Includes the end-of-sequence tokens if the text may end. `possible` are the tokens that
  /// may come next.
  MaskPtr mask(const Configuration& from, uint64_t budget, const Mask& possible);

  /// True if new texts should start with a new instance.
  bool full() const { return bytes() > kMaxBytes; }
  size_t bytes() const override { return bytes_; }

  /// Updates `bytes`, after calls that may allocate.
  void measure_bytes();

 private:
  static constexpr size_t kMaxBytes = size_t{10} << 20, kMaskBytes = size_t{2} << 20;  // kMaskBytes: of `made_`

  /// Bounds on the number of tokens of a completion.
  struct Need {
    uint64_t least, most;
  };
  /// A cached mask with the range of budgets for which it holds.
  struct Made {
    uint64_t from, below;
    MaskPtr mask;                    ///< null if every token fits
    std::vector<TokenId> undecided;  ///< tokens about which configurations with this representative may differ

    bool holds_for(uint64_t budget) const { return from <= budget && budget < below; }
    size_t bytes() const { return sizeof(Made) + (mask ? mask->bytes : 0) + undecided.size() * sizeof(TokenId); }
  };
  using MadePtr = std::shared_ptr<const Made>;
  /// A token in `walk_.tokens`, by its index, about which a measurement decides.
  struct Pending {
    size_t token;
    const Configuration* after;
    uint64_t bytes;  ///< of the completion
  };
  void start_work(bool only_endings) {
    walk_.registers().only_endings = only_endings;
    walk_.store().start_work();
  }
  uint64_t measured_tokens(const Configuration& from);
  MadePtr find_or_make(const Configuration& from, uint64_t budget);
  Made make(const Configuration& from, uint64_t budget);
  void start(const Configuration& from, uint64_t budget);
  uint64_t work() const;
  void allow_work();
  Trie select(const std::vector<TokenId>& tokens) const;
  MaskPtr listed(const Configuration& from);
  void walk(const Trie& trie, const Configuration& from);
  bool admits(std::span<const StackTop> tops, const Configuration* all);
  bool fits(const Need& need);
  void measure_pending();
  Need bound(const Configuration& at);
  Need measure(const Configuration& at);
  void same_from(uint64_t budget) { same_from_ = std::max(same_from_, budget); }
  void same_below(uint64_t budget) { same_below_ = std::min(same_below_, budget); }
  bool bytes_fit(uint64_t bytes, uint64_t budget) const { return one_for_each_byte_ && bytes <= budget; }
  bool all_fit(const Configuration& from);
  uint64_t within_top(const StackTop& top, uint64_t growth);
  bool walk_out_of_wildcard(const Configuration& from);
  void walk_along_completion(const Configuration& from);
  uint64_t need_in_wildcard(const Configuration& from, const StackTop& top, uint64_t growth);
  void walk_unfinished(const Configuration& from);
  bool walk_usual_text(const Configuration& from);
  bool walk_counted_text(const Configuration& from);
  const Configuration& with_calls(const Configuration& from);
  void add_call(const Configuration& inside, const Configuration* parent, std::vector<StackTop>& out);
  const Configuration& representative(const Configuration& from);
  bool decided() { return walk_.undecided.empty() && !walk_.registers().indescribable; }
  MaskPtr leaving_at_once(const Configuration& from, uint64_t budget, const Made& others);

  const CompiledGrammar& grammar_;
  WalkScratch scratch_;
  TrieWalk walk_;
  Completions completions_;
  Stepper stepper_;
  CountedTextFinder counted_;
  UsualTextFinder usual_;
  CompletionBounds bounds_;
  std::vector<StackTop> tops_;
  const Configuration* start_;
  bool one_for_each_byte_;  // see CompiledGrammar::bytes_bound_tokens
  std::atomic<size_t> bytes_{0};
  std::unordered_map<const Configuration*, uint64_t> reach_;  // most tokens needed after any allowed token
  LruCache<MadePtr> made_{kMaskBytes};  // by configuration: the last one; and by configuration and budget
  std::vector<Pending> pending_;
  std::optional<StackTop> last_;               // the last stack top that was alone ...
  const Configuration* last_after_ = nullptr;  // ... its configuration
  Need last_need_{};                           // ... and bounds on its need
  const Mask* possible_ = nullptr;             // tokens that may come next
  const Configuration* from_ = nullptr;        // start of the walk
  uint64_t budget_ = 0, most_ = 0;             // ... its budget, and an upper bound on the need after any of its tokens
  uint64_t same_from_ = 0, same_below_ = 0;    // ... the budgets for which the outcome is the same
  uint64_t judged_ = 0, most_work_ = 0;        // stacks judged so far, and the limit of the work for all tokens
  bool alone_ = false;      // ... true while one of many stacks is walked alone, whose bytes may be enough
  bool measuring_ = false;  // ... true once completions are measured, and not only their bytes
  bool guessed_ = false;    // ... true if some completion was not measured
  TokenSet tokens_;
};

}  // namespace constrain
