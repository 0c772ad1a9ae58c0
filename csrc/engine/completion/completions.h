// How texts may be brought to an end: a shortest way, byte by byte, and the tokens it takes.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/cost.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Finds completions of configurations, and remembers them.
///
/// The next byte of a completion is the first one tried that leads nearer to the end, so it depends on the
/// configuration alone: whatever a completion begins with, its rest is the completion of what it has come to. That is
/// what lets a text be completed within a budget, since each token of a completion leaves one that is a token shorter.
class Completions {
 public:
  /// `store` and `registers` intern, and live as long.
  Completions(const CompiledGrammar& grammar, ConfigurationStore& store, Registers& registers)
      : grammar_(grammar), store_(store), registers_(registers), stepper_(grammar, store, registers), costs_(grammar) {}

  struct Length {
    uint64_t tokens;  ///< fewest tokens that spell it; kInfinite where the vocabulary lacks bytes that it needs
    uint64_t bytes;
  };
  Length measure(const Configuration& from);

  /// Begins a round of measurements with `measure_within`, which together look at `steps` steps.
  void start_round(uint64_t steps) { ++round_, left_ = steps; }

  /// The same as `measure` while the round's steps suffice, and afterwards where a completion comes upon one that was
  /// measured in this round. What is known from earlier rounds counts like what is found now, so that the outcome
  /// does not depend on them.
  std::optional<Length> measure_within(const Configuration& from);

  std::string text(const Configuration& from);

  /// Its first byte; none where the text is complete.
  std::optional<uint8_t> next_byte(const Configuration& from);

  /// What a text comes to by that byte; it must have one.
  const Configuration& after_next_byte(const Configuration& from) { return *step(&from).next; }

  /// Bytes that a completion has at least; indentation is not counted.
  uint64_t cost(const Configuration& from) { return costs_.of(&from); }

  size_t size() const { return steps_.size() + costs_.size(); }

 private:
  /// A configuration on a way to the end. `next` is null where the text is complete.
  struct Step {
    const Configuration* next = nullptr;
    uint8_t byte = 0;
    bool measured = false;
    uint32_t round = 0;  ///< the last in which it was looked at
    Length length = {0, 0};
    Step* then = nullptr;  ///< of `next`, once measured
  };

  void check_length(size_t steps) const;
  Step* known_step(const Configuration* at);
  Step& step(const Configuration* at);
  Step first_step(const Configuration& at);
  ByteSet possible_bytes(const Configuration& at) const;
  ByteSet likely_bytes(const Configuration& at) const;
  void settle(const std::vector<Step*>& way, Step* end);
  const Configuration* advance(const Configuration& from, uint8_t byte);
  uint64_t spell(const Step& from) const;

  const CompiledGrammar& grammar_;
  ConfigurationStore& store_;
  Registers& registers_;
  Stepper stepper_;
  std::vector<Head> heads_;
  std::unordered_map<const Configuration*, Step> steps_;
  Costs costs_;
  uint32_t round_ = 0;
  uint64_t left_ = 0;  // steps of the round
};

}  // namespace constrain
