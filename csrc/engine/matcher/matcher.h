// The matcher: the parse state of one generated text, and the token mask of its next token.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/completion/budgeted_masks.h"
#include "engine/completion/completion_bounds.h"
#include "engine/completion/tokenizable_masks.h"
#include "engine/grammar/configuration.h"
#include "engine/grammar/recent_cache.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Tracks one text token by token, and computes the mask of its next token.
///
/// A matcher belongs to one thread at a time. Its clones may be used from other threads, and share its memory.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);

  const CompiledGrammar& grammar() const { return *session_->grammar; }

  /// Sets bit t of `bits` (`mask_words()` words) if token t may come next. Returns true if any token of the vocabulary
  /// is excluded. After the end of the text only end-of-sequence tokens are allowed. `budget` is that of `mask`.
  bool fill(uint32_t* bits, std::optional<uint64_t> budget = std::nullopt) const;

  /// Returns the mask of the next token, shared by all texts that allow the same tokens. Throws VocabularyError if no
  /// tokens complete the text: after accept_bytes, or if nothing of the grammar is tokenizable.
  MaskPtr mask() const;

  /// Returns the tokens after which the text can still be completed within `budget` tokens, including the
  /// end-of-sequence token. Throws BudgetError if `budget` is less than `min_tokens()`.
  MaskPtr mask(uint64_t budget) const;

  /// Accepts a token; false, without any change, if it is not allowed.
  bool accept(TokenId token);

  /// Accepts bytes, which count as one token for `rollback`. Does not require that tokens complete the text.
  bool accept_bytes(std::string_view bytes);

  /// True if the text so far is complete.
  bool is_accepting() const { return last_->terminated || last_->configuration->accepting; }

  /// True if the text is complete, and nothing may follow.
  bool is_finished() const;

  /// Undoes the last `count` tokens. Throws std::out_of_range if there are fewer.
  void rollback(size_t count);

  void reset() { last_ = &session_->first, replayed_ = 0; }

  /// Number of accepted tokens, including the end-of-sequence token.
  size_t accepted_tokens() const { return last_->index; }

  /// Bytes that must come next, up to the first choice.
  std::string forced_bytes() const;

  /// Returns up to `limit` tokens that must come next: the start of every tokenization of the forced bytes. Without a
  /// tokenizer, tokens that are each the only one allowed.
  std::vector<TokenId> forced_tokens(size_t limit) const;

  /// Bytes of a shortest completion.
  std::string completion() const;

  /// Fewest tokens for `completion()` and the end-of-sequence token; 0 after the end.
  uint64_t min_tokens() const;

 private:
  struct Step {
    const Step* previous = nullptr;
    const Configuration* configuration = nullptr;
    size_t index = 0;
    bool terminated = false;
    TokenId token = kNoToken;  ///< kNoToken for bytes
    std::string_view bytes;
  };

  /// The text's position in the shared masks under budgets.
  struct Budgeted {
    BudgetedMasks& masks;
    std::unique_lock<std::mutex> lock;
    const Configuration& at;

    ~Budgeted() { masks.measure_bytes(); }
  };

  /// Shared masks under budgets, in which a text was replayed.
  struct Replayed {
    std::shared_ptr<BudgetedMasks> masks;
    std::unordered_map<const Configuration*, const Configuration*> at;  ///< their configurations by the session's
  };

  /// State shared by a matcher and its clones: an arena of configurations, which are never freed one by one.
  struct Session {
    explicit Session(std::shared_ptr<const CompiledGrammar> grammar);
    std::shared_ptr<const CompiledGrammar> grammar;
    Arena arena;
    Registers registers;
    ConfigurationStore store;
    Stepper stepper;
    RecentCache<MaskPtr> masks;
    CompletionBounds bounds;
    Replayed budgeted, next_budgeted;  ///< the next replaces one that is full, once it has caught up with the text
    std::unique_ptr<TokenizableMasks> tokenizable;
    Step first;
    std::mutex mutex;
  };

  bool extend(std::string_view bytes, TokenId token);
  MaskPtr make_mask(const Configuration& at) const;
  std::string_view copy(std::string_view bytes);
  void push(const Configuration* configuration, bool terminated, TokenId token, std::string_view bytes);
  std::vector<TokenId> single_choice_tokens(size_t limit) const;
  std::vector<TokenId> last_tokens() const;
  MaskPtr end_mask() const;
  void start(Replayed& text) const;
  const Step& replay(Replayed& text, size_t most) const;
  Budgeted budgeted(size_t most = SIZE_MAX) const;
  TokenizableMasks& tokenizable() const;

  std::shared_ptr<Session> session_;
  const Step* last_;
  mutable size_t replayed_ = 0;  // tokens of the text that are known in `Session::budgeted`
};

}  // namespace constrain
