// One text being generated under a grammar.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/completion/budgeted_masks.h"
#include "engine/completion/completion_bounds.h"
#include "engine/completion/spelled_masks.h"
#include "engine/grammar/configuration.h"
#include "engine/grammar/memo.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Follows a text token by token, and says at every point which tokens may come next.
///
/// A matcher belongs to one thread at a time; its clones may be used from others, and share its memory.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);

  const CompiledGrammar& grammar() const { return *session_->grammar; }

  /// Sets bit t of `bits` (`mask_words()` words) exactly where token t may come next. Returns whether any token of the
  /// vocabulary is excluded. After the end only the end-of-sequence tokens are allowed. `budget` is that of `mask`.
  bool fill(uint32_t* bits, std::optional<uint64_t> budget = std::nullopt) const;

  /// The same as a mask that is shared with every place where the same tokens are allowed. Throws VocabularyError where
  /// no tokens complete the text, which only accept_bytes can lead to, or a vocabulary that spells nothing of the
  /// grammar.
  MaskPtr mask() const;

  /// The same for a text that is to be complete after `budget` tokens at most, the end-of-sequence token included: only
  /// tokens after which a completion still fits. Throws BudgetError where the budget is less than `min_tokens()`.
  MaskPtr mask(uint64_t budget) const;

  /// Takes a token, or returns false, and changes nothing, where it is not allowed.
  bool accept(TokenId token);

  /// The same for bytes, which count as one token for `rollback`, whether there are tokens to complete them or not.
  bool accept_bytes(std::string_view bytes);

  /// The text so far is complete.
  bool is_accepting() const { return last_->terminated || last_->configuration->accepting; }

  /// The text is complete, and nothing but the end may follow.
  bool is_finished() const;

  /// Undoes the last `count` tokens. Throws std::out_of_range where there are fewer.
  void rollback(size_t count);

  void reset() { last_ = &session_->first; }

  /// Tokens accepted so far, the end-of-sequence token included.
  size_t accepted_tokens() const { return last_->index; }

  /// The bytes that must come next, as far as there is no choice.
  std::string forced_bytes() const;

  /// The tokens that must come next, at most `limit` of them: those that the tokenizer cuts the forced bytes into,
  /// whatever comes after them. Without a tokenizer, tokens of which each is the only one allowed.
  std::vector<TokenId> forced_tokens(size_t limit) const;

  /// A shortest text that completes the text so far.
  std::string completion() const;

  /// Fewest tokens that spell `completion()`, and the end-of-sequence token; none after the end.
  uint64_t min_tokens() const;

 private:
  struct Step {
    const Step* previous = nullptr;
    const Configuration* configuration = nullptr;
    size_t index = 0;
    bool terminated = false;
    TokenId token = kNoToken;  ///< where it was one
    std::string_view bytes;
  };

  /// Where the text is among those that share what is known of budgets.
  struct Budgeted {
    BudgetedMasks& masks;
    std::unique_lock<std::mutex> lock;
    const Configuration& at;

    ~Budgeted() { masks.measure_bytes(); }
  };

  /// What a matcher and its clones share: memory for configurations, which are never freed one by one.
  struct Session {
    explicit Session(std::shared_ptr<const CompiledGrammar> grammar);
    std::shared_ptr<const CompiledGrammar> grammar;
    Arena arena;
    Registers registers;
    ConfigurationStore store;
    Memo<MaskPtr> masks;
    CompletionBounds bounds;
    std::shared_ptr<BudgetedMasks> budgeted;
    std::unordered_map<const Configuration*, const Configuration*> there;  ///< the same configurations in `budgeted`
    std::unique_ptr<SpelledMasks> spelled;
    Step first;
    std::mutex mutex;
  };

  const Configuration* advance(const Configuration* from, std::string_view bytes) const;
  bool go_on(std::string_view bytes, TokenId token);
  MaskPtr make_mask(const Configuration& at) const;
  std::string_view keep(std::string_view bytes);
  void push(const Configuration* configuration, bool terminated, TokenId token, std::string_view bytes);
  std::vector<TokenId> lone_tokens(size_t limit) const;
  std::vector<TokenId> last_tokens() const;
  MaskPtr end_mask() const;
  Budgeted budgeted() const;
  SpelledMasks& spelled() const;

  std::shared_ptr<Session> session_;
  const Step* last_;
};

}  // namespace constrain
