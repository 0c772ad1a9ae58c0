// Upper bounds on the completions after any next token.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Bounds completions without looking at tokens or registers, so that most masks under a budget need no further work.
///
/// After a token, the lower part of a stack is one of the old stacks, whose top frame may have moved on. Above it are
/// frames that the token has opened; all but one of them wait for callees. Waiting frames of JSON begin with a bracket,
/// so few tokens open more than one. Each frame needs at most the maximum of its rule.
class CompletionBounds {
 public:
  explicit CompletionBounds(const CompiledGrammar& grammar) : grammar_(grammar) {}

  /// True if `budget` tokens certainly suffice for the text, and after every next token. The mask of the text must have
  /// been made.
  bool surely_fit(const Configuration& from, uint64_t budget) {
    return grammar_.bytes_bound_tokens() && after_any_token(from) <= budget;
  }

  /// Bytes that suffice to complete the text now and after every next token; kInfinite if no bound is known. The mask
  /// of the configuration must have been made, because it has met the states that tokens lead to.
  uint64_t after_any_token(const Configuration& from);

  /// Bounds the top frame and its embedded configuration, after tokens that neither end nor open a frame.
  uint64_t on_top(const StackTop& top);

  size_t size() const { return cache_.size(); }

 private:
  /// Bounds over all stacks of a configuration.
  struct Bounds {
    uint64_t waiting = 0;  ///< bytes to complete all frames
    uint64_t opened = 0;   ///< bytes to complete frames that one token may push
    void unite(const Bounds& other);
  };
  std::optional<Bounds> find(const StackTop& top, std::vector<const Configuration*>& missing) const;
  const Bounds& of(const Configuration& configuration);

  const CompiledGrammar& grammar_;
  std::unordered_map<const Configuration*, Bounds> cache_;
};

}  // namespace constrain
