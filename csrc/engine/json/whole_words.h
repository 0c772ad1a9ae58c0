// Substrings of a text that are whole words.
#pragma once

#include <string>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// Returns the substrings of well-formed UTF-8 that begin and end at edges: at the ends of the text, and wherever not
/// both neighbours are letters, digits or underscores (`\w` of Python).
AutomatonPtr whole_words_of(const std::string& text);

}  // namespace constrain::json
