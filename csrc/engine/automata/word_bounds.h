// How long the rest of a word can be at most.
#pragma once

#include <functional>
#include <optional>

#include "engine/automata/automaton.h"

namespace constrain {

struct WordBounds {
  /// Bytes within which, from any state, more words go on than there are given ones, or all that there are.
  uint64_t rest = 0;
  bool endless = false;  ///< from the start there are more words than given ones
};

/// Looks at an automaton of at most `max_states` states, of which `taken` words are given. `length` tells how many
/// bytes a byte of a word counts for. None where there are more states, or where nothing is easily seen.
std::optional<WordBounds> word_bounds(Automaton& words, uint64_t taken, size_t max_states,
                                      const std::function<uint64_t(uint8_t)>& length);

}  // namespace constrain
