// Substrings of a text that are whole words.
#pragma once

#include <string>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// Returns the substrings of well-formed UTF-8 that begin and end at borders of words (see `word_borders`).
AutomatonPtr whole_words_of(const std::string& text);

}  // namespace constrain::json
