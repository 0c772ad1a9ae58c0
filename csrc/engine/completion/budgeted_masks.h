// Which tokens keep a text inside a grammar, and leave enough of a budget to complete it.
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

#include "engine/completion/completion_bounds.h"
#include "engine/completion/completions.h"
#include "engine/grammar/memo.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/trie_walk.h"
#include "engine/tokens/mask.h"

namespace constrain {

/// Masks under a budget of tokens, for all texts of a grammar: what is found out about one serves the others.
///
/// A token may come where the completion of what it leads to still fits. The first token of the current completion
/// always does, so a text whose completion fits at the start can be completed whichever allowed tokens are taken.
/// Where tokens lead to so many different completions that measuring all would take too long, some may come only where
/// even one token for each byte would fit.
///
/// Threads share it: whoever calls anything but `full` holds `mutex`. Configurations are its own; those of a matcher
/// are found again by following its text.
class BudgetedMasks final : public SharedStage {
 public:
  explicit BudgetedMasks(const CompiledGrammar& grammar);

  /// Those of a grammar; new ones if the last are full.
  static std::shared_ptr<BudgetedMasks> shared(const CompiledGrammar& grammar);

  std::mutex mutex;

  const Configuration& start() const { return *start_; }

  /// What a configuration comes to by bytes that may follow.
  const Configuration& after(const Configuration& from, std::string_view bytes);

  /// Fewest tokens that spell `completion`. Throws VocabularyError where none do.
  uint64_t tokens(const Configuration& from);

  /// Whether they are at most `room`, which is told faster.
  bool fits(const Configuration& from, uint64_t room);

  /// A shortest text that completes the text so far.
  std::string completion(const Configuration& from);

  /// The tokens after which a completion of `room` tokens at most is left, and perhaps some that may not come next;
  /// null where that holds after every token that may. The end-of-sequence token is included where the text may end.
  MaskPtr mask(const Configuration& from, uint64_t room);

  /// It has come to take so much memory that texts had better start with a new one.
  bool full() const { return bytes() > kMaxBytes; }
  size_t bytes() const override { return bytes_; }

  /// To be called when the memory may have grown.
  void measure_bytes();

 private:
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  /// Between what numbers of tokens a completion has.
  struct Need {
    uint64_t least, most;
  };
  /// What was found for some room, and the room for which the same would be found.
  struct Made {
    uint64_t from, below;
    MaskPtr mask;   ///< null where every token fits
    bool complete;  ///< no token was left out because of a text that stands for others
  };
  Made find_or_make(const Configuration& from, uint64_t room);
  Made make(const Configuration& from, uint64_t room);
  void start(const Configuration& from, uint64_t room);
  void forget();
  MaskPtr listed(const Configuration& from);
  bool admits(std::span<const Head> heads);
  Need need_after(std::span<const Head> heads);
  Need measure(const Configuration& at);
  void same_from(uint64_t room) { same_from_ = std::max(same_from_, room); }
  void same_below(uint64_t room) { same_below_ = std::min(same_below_, room); }
  bool bytes_fit(uint64_t bytes, uint64_t room) const { return one_for_each_byte_ && bytes <= room; }
  bool all_fit(const Configuration& from);
  uint64_t within_top(const Head& head, uint64_t growth);
  bool walk_out_of_free_text(const Configuration& from);
  void walk_along_completion(const Configuration& from);
  uint64_t within_free_text(const Configuration& from, const Head& head);
  const Configuration& like(const Configuration& from);
  MaskPtr leaving_at_once(const Configuration& from, uint64_t room, const Mask& others);
  std::optional<Head> any_text(const Head& head, std::vector<std::string>& exceptions);
  uint64_t after_any_text(const Head& head, uint64_t growth);

  const CompiledGrammar& grammar_;
  WalkScratch scratch_;
  TrieWalk walk_;
  Completions completions_;
  Stepper stepper_;
  CompletionBounds bounds_;
  std::vector<Head> heads_;
  const Configuration* start_;
  bool one_for_each_byte_;  // see CompiledGrammar::bytes_bound_tokens
  std::atomic<size_t> bytes_{0};
  std::unordered_map<const Configuration*, uint64_t> reach_;  // most tokens left after any that may come
  Memo<Made> made_;
  std::optional<Head> last_;                 // the stack that was measured last ...
  Need last_need_{};                         // ... and its tokens
  const Configuration* from_ = nullptr;      // of the walk
  uint64_t room_ = 0, most_ = 0;             // ... what there is, and what the neediest token needs, or a little more
  uint64_t same_from_ = 0, same_below_ = 0;  // ... and for what room its outcome is the same
  bool measuring_ = false;                   // ... whether completions are measured, and not only their bytes
  bool guessed_ = false;                     // ... and whether some that should be were not
  TokenSet tokens_;
};

}  // namespace constrain
