// Character classes: sets of characters that wildcard regions and token classes are made of.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/byte_set.h"

namespace constrain {

/// Characters for which wildcard regions are followed; beyond that their length counts as unknown.
inline constexpr uint64_t kWildcardHorizon = 32;

/// A set of ASCII characters, and of no or almost all characters beyond ASCII.
struct CharacterClass {
  using Range = std::pair<char32_t, char32_t>;  ///< first and last

  ByteSet ascii;
  bool beyond_ascii = false;
  std::vector<Range> excluded;  ///< beyond ASCII; sorted and disjoint

  /// True if every character of the range is excluded.
  bool excludes(Range range) const;

  bool operator==(const CharacterClass&) const = default;

  /// Number of bytes that may begin a member.
  int count() const;

  /// The characters that JSON strings contain unescaped: all but quotation marks, backslashes and control characters.
  static CharacterClass plain();
};

}  // namespace constrain
