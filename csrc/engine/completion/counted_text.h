// Texts of which only the number of characters matters.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/grammar/parse_table.h"
#include "engine/text/character_class.h"
#include "engine/text/utf8.h"

namespace constrain {

/// Characters each of which leads a frame to the same place, as in a string of which only the length matters.
struct CountedText {
  CharacterClass characters;
  std::vector<StackTop> after;  ///< after 1, 2, ... characters
  bool endless = false;         ///< any more characters lead to the last place as well
  bool cut = false;             ///< more characters may follow, which were not counted
  ByteSet leaving;              ///< bytes outside the class that may follow after any number of characters
};

/// Finds the counted text of a stack top by steps over all characters; none if the class is small.
class CountedTextFinder {
 public:
  CountedTextFinder(const ParseTable& grammar, Stepper& stepper) : grammar_(grammar), stepper_(stepper) {}

  std::optional<CountedText> from(const StackTop& top);

 private:
  static constexpr int kMinCharacters = 32;
  static constexpr size_t kMost = 16, kMaxPlaces = 64;  ///< characters counted, and places within one

  std::optional<StackTop> step(const StackTop& top, uint8_t byte);
  std::pair<StackTop, ByteSet> usual_step(const StackTop& top);
  bool all_lead(const StackTop& top, const CharacterClass& characters, const StackTop& to);
  bool beyond_ascii_leads(const StackTop& top, const StackTop& to);
  bool goes_on(const StackTop& top, const ByteSet& bytes);
  ByteSet possible_bytes(const StackTop& top) const;

  const ParseTable& grammar_;
  Stepper& stepper_;
  std::vector<StackTop> tops_;
};

}  // namespace constrain
