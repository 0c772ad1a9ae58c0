// How far one token may lead in a JSON text.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/byte_set.h"

namespace constrain {

/// What a token may hold of a JSON text, wherever it stands: upper bounds over the tokens of a vocabulary.
struct TokenReach {
  uint32_t nested = 0;         ///< most brackets, each opened within the one before
  ByteSet keys;                ///< first bytes of keys that come after a bracket or a comma
  bool whole_keys = false;     ///< such a key may be complete
  bool whole_members = false;  ///< the end of a key, its value and a comma

  void add(std::string_view token);
};

}  // namespace constrain
