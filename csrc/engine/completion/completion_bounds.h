// Upper bounds on the completions after any next token.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Bounds completions without looking at tokens, so that most masks under a budget need no further work.
///
/// After a token, the lower part of a stack is one of the old stacks, whose top frame may have moved on. Above it are
/// frames that the token has opened; all but one of them wait for callees. Waiting frames of JSON begin with a bracket,
/// so few tokens open more than one. Each frame needs at most the maximum of its rule, or if that is too much, little
/// more than in its present state.
class CompletionBounds {
 public:
  explicit CompletionBounds(const CompiledGrammar& grammar) : grammar_(grammar) {}

  /// Tokens of `budget` beyond what certainly suffices for the text, and after every next token; none if there are too
  /// few. The mask of the text must have been made, because it has met the states that tokens lead to.
  std::optional<uint64_t> to_spare(const Configuration& from, uint64_t budget);

  /// Bounds the top frame and its embedded configuration, after tokens that neither end nor open a frame.
  uint64_t on_top(const StackTop& top);

  size_t size() const { return any_.size() + measured_.size(); }

 private:
  /// Bounds over all stacks of configurations.
  using Cache = std::unordered_map<const Configuration*, FrameBounds>;

  std::optional<FrameBounds> find(const StackTop& top, const Cache& cache,
                                  std::vector<const Configuration*>& missing) const;
  FrameBounds of(const Configuration& configuration, Cache& cache, uint64_t limit = kInfinite) const;

  const CompiledGrammar& grammar_;
  Cache any_;       // for any states of the frames
  Cache measured_;  // for their present states
};

}  // namespace constrain
