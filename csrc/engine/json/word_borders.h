// Borders of words in a text.
#pragma once

#include <string_view>
#include <vector>

namespace constrain::json {

/// Returns for each position of a text, from 0 to its length, whether a word may begin or end there.
///
/// A simplification of the word boundaries of Unicode (UAX #29). A border is at the ends of the text, and wherever not
/// both neighbours are letters, digits or underscores (`\w` of Python's `re`) of scripts that separate words by spaces:
/// between Chinese characters, for example, there is always one. There is none within a character that is
/// composed of several: before marks, variation selectors and modifiers of emoji, around joiners, and within flags.
std::vector<bool> word_borders(std::u32string_view text);

}  // namespace constrain::json
