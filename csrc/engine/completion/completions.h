// Shortest completions of texts: byte by byte, and their number of tokens.
#pragma once

#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/cost.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Finds and caches shortest completions of configurations.
///
/// The next byte of a completion is the first one tried that leads closer to the end, so it depends on the
/// configuration alone: every suffix of a completion is the completion of the configuration it starts at. Hence each
/// token of a completion leaves one that is a token shorter, which is the invariant of masks under a budget.
class Completions {
 public:
  /// `store` and `registers` intern, and outlive this.
  Completions(const CompiledGrammar& grammar, ConfigurationStore& store, Registers& registers)
      : grammar_(grammar),
        store_(store),
        registers_(registers),
        stepper_(grammar, store, registers),
        costs_(grammar),
        exact_(grammar.bytes_bound_tokens()) {}

  struct Length {
    uint64_t tokens;  ///< fewest tokens; kInfinite if it is not tokenizable
    uint64_t bytes;
  };
  Length measure(const Configuration& from);

  /// Begins a round of `measure_within` calls, which together visit at most `steps` steps and make about `frames`
  /// frames, besides the completion of `from`. The work is not charged to the caller.
  void start_round(const Configuration& from, uint64_t steps, uint64_t frames);

  /// Measures within the steps and the work of the round; none once these are used up, unless the completion runs into
  /// one measured in this round. Steps cached in earlier rounds are charged again, so that the outcome does not depend
  /// on the cache.
  std::optional<Length> measure_within(const Configuration& from);

  std::string text(const Configuration& from);

  /// First byte of the completion; none if the text is complete.
  std::optional<uint8_t> next_byte(const Configuration& from);

  /// The configuration after that byte, which must exist.
  const Configuration& after_next_byte(const Configuration& from) { return *step(&cheapest(from)).next; }

  /// A stack whose completion has the fewest bytes.
  const StackTop& cheapest_stack(const Configuration& from) {
    return from.tops()[from.count > 1 ? costs_.cheapest(&from).front() : 0];
  }

  /// Lower bound on the bytes of the completion, without indentation.
  uint64_t cost(const Configuration& from) { return costs_.of(&from); }

  size_t size() const { return steps_.size() + costs_.size(); }

 private:
  /// One step of a completion. `next` is null if the text is complete.
  struct Step {
    const Configuration* next = nullptr;
    uint8_t byte = 0;
    bool measured = false;
    uint32_t round = 0;  ///< last round that visited it
    uint64_t work = 0;   ///< frames made to find it
    Length length = {0, 0};
    Step* then = nullptr;  ///< step of `next`, once measured
  };

  void check_length(size_t steps) const;
  const Configuration& cheapest(const Configuration& from);
  Step* cached_step(const Configuration* at);
  Step& step(const Configuration* at);
  bool round_is_over() const { return left_ == 0 || work_ > most_work_; }
  Step first_step(const Configuration& at);
  void measure_steps(const std::vector<Step*>& way, Step* end);
  bool comes_nearer(const StackTop& top, uint8_t byte, uint64_t here);
  const Configuration* advance(const Configuration& from, uint8_t byte);
  void step_all(std::span<const StackTop> from, uint8_t byte);
  uint64_t count_tokens(const Step& from) const;

  const CompiledGrammar& grammar_;
  ConfigurationStore& store_;
  Registers& registers_;
  Stepper stepper_;
  std::vector<StackTop> tops_;
  std::pmr::monotonic_buffer_resource memory_;  // large caches are dropped at once
  std::pmr::unordered_map<const Configuration*, Step> steps_{&memory_};
  Costs costs_;
  bool exact_;  // lengths are
  uint32_t round_ = 0;
  uint64_t left_ = 0;       // steps left in this round
  uint64_t work_ = 0;       // frames made in this round
  uint64_t most_work_ = 0;  // ... and their limit
};

}  // namespace constrain
