// Strings that are whole words of a text.
#pragma once

#include <string>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// The strings that occur in a text, which is well-formed UTF-8, so that they begin and end at edges: at the ends of
/// the text, and wherever not both of the characters around are letters, digits or underscores, as `\w` of Python has
/// it.
AutomatonPtr whole_words_of(const std::string& text);

}  // namespace constrain::json
