// Substrings of a text that are whole words, or whole chunks.
#pragma once

#include <string>
#include <vector>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// Returns the substrings of well-formed UTF-8 that begin and end at borders of words (see `word_borders`).
AutomatonPtr whole_words_of(const std::string& text);

/// Returns the concatenations of successive chunks, none included. Each chunk is well-formed UTF-8.
AutomatonPtr whole_chunks_of(const std::vector<std::string>& chunks);

}  // namespace constrain::json
