// How long completions can be at most after any token that may come next.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Bounds that cost next to nothing: nobody looks at the tokens, nor at what the registers of frames say.
///
/// A token leaves a stack of which the lower part is one of the stacks there were. Of the frames in it the highest may
/// have moved on; above it are the frames that the token has opened, of which all but one wait for others. Frames of
/// JSON that wait begin with a bracket, so that few tokens open more than one. Each frame needs no more than any of its
/// rule does.
class CompletionBounds {
 public:
  explicit CompletionBounds(const CompiledGrammar& grammar) : grammar_(grammar) {}

  /// One of `room` tokens is left for the text and after every token that may come next: `room` is so far above what
  /// completions need that no token comes near it. The text's mask must have been made.
  bool surely_fit(const Configuration& from, uint64_t room) {
    return grammar_.bytes_bound_tokens() && after_any_token(from) <= room;
  }

  /// Bytes that suffice to complete the text, as it is and after every token that may come next; kInfinite where no
  /// bound is known. The mask of the configuration must have been made: it has met the states that tokens lead to.
  uint64_t after_any_token(const Configuration& from);

  /// The same of the top frame alone, and of what it follows in its register, after tokens that end no frame and open
  /// none.
  uint64_t on_top(const Head& head);

  size_t size() const { return known_.size(); }

 private:
  /// Of all stacks of a configuration.
  struct Bounds {
    uint64_t waiting = 0;  ///< bytes of all frames
    uint64_t opened = 0;   ///< bytes of the frames that a token may put upon one of them
    void unite(const Bounds& other);
  };
  std::optional<Bounds> find(const Head& head, std::vector<const Configuration*>& missing) const;
  const Bounds& of(const Configuration& configuration);

  const CompiledGrammar& grammar_;
  std::unordered_map<const Configuration*, Bounds> known_;
};

}  // namespace constrain
