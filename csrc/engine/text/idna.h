// Characters of internationalised host names (IDNA 2008, RFC 5892).
#pragma once

#include <cstdint>
#include <span>

namespace constrain {

/// Classes of the bidirectional algorithm, as far as RFC 5893 tells them apart.
enum class Bidi : uint8_t { left, right, european, arabic, mark, neutral };
enum class Joining : uint8_t { none, left, right, both, transparent };
enum class Script : uint8_t { other, greek, hebrew, japanese };

/// Characters that RFC 5892, appendix A, allows in some contexts only.
enum class Context : uint8_t {
  none,
  middle_dot,
  keraia,
  geresh,
  katakana_dot,
  arabic_digit,
  extended_digit,
  joiner,
  non_joiner
};

struct IdnaCharacter {
  Bidi bidi = Bidi::neutral;
  bool is_mark = false;
  uint8_t order = 0;  ///< canonical combining class
  Joining joining = Joining::none;
  Script script = Script::other;
  bool takes_marks = false;  ///< composes with no mark of its block
  bool ends_pair = false;    ///< NFC composes it with some characters before it
  Context context = Context::none;
};

/// Characters with the same properties.
struct IdnaRun {
  char32_t first, last;
  uint8_t kind;  ///< index of the properties
};

/// All characters beyond ASCII that labels may have, in order.
std::span<const IdnaRun> idna_runs();
std::span<const IdnaCharacter> idna_kinds();

/// Returns a character beyond ASCII that labels may have; nullptr for others.
const IdnaCharacter* idna_character(char32_t scalar);

}  // namespace constrain
