#include "engine/text/character_class.h"

#include <algorithm>

namespace constrain {

CharacterClass CharacterClass::plain() {
  CharacterClass out{{}, true, {}};
  for (uint8_t byte = 0x20; byte < 0x80; ++byte) {
    if (byte != '"' && byte != '\\') out.ascii.add(byte);
  }
  return out;
}

int CharacterClass::count() const { return ascii.count() + (beyond_ascii ? 128 : 0); }

bool CharacterClass::excludes(Range range) const {
  return std::ranges::any_of(excluded,
                             [&](const Range& one) { return one.first <= range.first && range.second <= one.second; });
}

}  // namespace constrain
