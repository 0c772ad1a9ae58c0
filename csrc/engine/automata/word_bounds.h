// Upper bounds on the rest of a word.
#pragma once

#include <functional>
#include <optional>

#include "engine/automata/automaton.h"

namespace constrain {

struct WordBounds {
  /// Bytes within which every state has completions to more than `taken` words, or to all words that there are.
  uint64_t rest = 0;
  bool endless = false;  ///< there are more than `taken` words
};

/// Analyses an automaton of at most `max_states` states. `length` is the weight of a byte. None if the automaton is
/// larger, or no bound is found.
std::optional<WordBounds> word_bounds(Automaton& words, uint64_t taken, size_t max_states,
                                      const std::function<uint64_t(uint8_t)>& length);

}  // namespace constrain
