#include "engine/text/character_class.h"

#include <algorithm>

namespace constrain {

CharacterClass CharacterClass::plain() {
  static constexpr ByteSet kAscii = [] {
    ByteSet ascii;
    ascii.add(0x20, '"' - 1), ascii.add('"' + 1, '\\' - 1), ascii.add('\\' + 1, 0x7F);
    return ascii;
  }();
  return {kAscii, true, {}};
}

int CharacterClass::count() const { return ascii.count() + (beyond_ascii ? 128 : 0); }

bool CharacterClass::excludes(Range range) const {
  return std::ranges::any_of(excluded,
                             [&](const Range& one) { return one.first <= range.first && range.second <= one.second; });
}

}  // namespace constrain
