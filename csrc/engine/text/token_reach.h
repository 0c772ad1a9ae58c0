// How far one token may lead in a JSON text.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/byte_set.h"

namespace constrain {

/// Upper bounds, over the tokens of a vocabulary, of the parts of a JSON text that a token may hold at any offset.
struct TokenReach {
  uint32_t nested = 0;         ///< most brackets, each opened within the one before
  ByteSet keys;                ///< first bytes of keys that come after a bracket or a comma
  bool whole_keys = false;     ///< such a key may be complete
  bool whole_members = false;  ///< the end of a key, its value and a comma

  void add(std::string_view token);
};

}  // namespace constrain
