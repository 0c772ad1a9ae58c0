#include "engine/json/word_borders.h"

#include "engine/automata/regex/regex_classes.h"
#include "engine/text/charset.h"
#include "engine/text/unicode.h"

namespace constrain::json {

namespace {

constexpr char32_t kJoiner = 0x200D;

/// Characters of scripts that are written without spaces between words.
CharSet unspaced_scripts() {
  // Tai Le and New Tai Lue; Tai Tham; Balinese; Yi; Javanese; Tai Viet.
  CharSet set = {{0x1950, 0x19DF}, {0x1A20, 0x1AAF}, {0x1B00, 0x1B7F},
                 {0xA000, 0xA4CF}, {0xA980, 0xA9DF}, {0xAA80, 0xAADF}};
  for (const char* script : {"Han", "Hiragana", "Katakana", "Bopomofo", "Thai", "Lao", "Myanmar", "Khmer"}) {
    set = set | unicode_set("Script", script).value();
  }
  return set;
}

struct WordClasses {
  /// Letters, digits and underscores of scripts with spaces between words.
  CharSet spaced = regex::ClassReader(Dialect::python, Classes::dialect).escape_class('w', false) - unspaced_scripts();
  /// Characters that belong to the one before: marks, joiners, modifiers of skin colour, tags of regional flags.
  CharSet extending =
      unicode_set("gc", "M").value() | CharSet{{0x200C, kJoiner}, {0x1F3FB, 0x1F3FF}, {0xE0020, 0xE007F}};
  /// Letters of flags.
  CharSet regional = {{0x1F1E6, 0x1F1FF}};
};

}  // namespace

std::vector<bool> word_borders(std::u32string_view text) {
  static const WordClasses classes;
  std::vector<bool> borders(text.size() + 1, true);
  char32_t base = 0;    // the last character that does not extend another
  size_t regional = 0;  // letters of flags up to here
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t character = text[i];
    const bool extends = classes.extending.contains(character);
    const bool one_word = classes.spaced.contains(base) && classes.spaced.contains(character);
    regional = classes.regional.contains(character) ? regional + 1 : 0;
    const bool ends_flag = regional > 0 && regional % 2 == 0;
    borders[i] = i == 0 || !(extends || one_word || ends_flag || text[i - 1] == kJoiner);
    if (!extends) base = character;
  }
  return borders;
}

}  // namespace constrain::json
