// Sets of characters that token classes are made of.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/byte_set.h"

namespace constrain {

/// Characters for which text over a class is followed; beyond that its length counts as unknown.
inline constexpr uint64_t kWildcardHorizon = 32;

/// A set of characters: some of ASCII, and none of those beyond it or almost all.
struct CharacterClass {
  using Range = std::pair<char32_t, char32_t>;  ///< first and last

  ByteSet ascii;
  bool beyond_ascii = false;
  std::vector<Range> excluded;  ///< beyond ASCII; in order, and not touching each other

  /// Every character of the range is excluded.
  bool excludes(Range range) const;

  bool operator==(const CharacterClass&) const = default;

  /// How many bytes may begin a character.
  int count() const;

  /// What JSON strings hold as it is: all but quotation marks, backslashes and control characters.
  static CharacterClass plain();
};

}  // namespace constrain
