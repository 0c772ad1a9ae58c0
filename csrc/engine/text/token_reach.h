// How far one token may lead in a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/base/byte_set.h"

namespace constrain {

/// Upper bounds, over the tokens of a vocabulary, of the parts of a text, mostly of a JSON text, that a token may hold
/// at any offset.
struct TokenReach {
  uint32_t nested = 0;         ///< most brackets, each opened within the one before
  ByteSet keys;                ///< first bytes of keys that come after a bracket or a comma
  bool whole_keys = false;     ///< such a key may be complete
  bool whole_members = false;  ///< the end of a key, its value and a comma

  std::array<uint32_t, 256> bytes{};  ///< how often each byte may occur
  uint32_t word_bytes = 0;  ///< most letters, digits, `_` and bytes beyond ASCII, which long tokens consist of

  void add(std::string_view token);
  /// How often bytes of a set may occur.
  uint64_t count(const ByteSet& among) const;

 private:
  void count_bytes(std::string_view token);
};

}  // namespace constrain
