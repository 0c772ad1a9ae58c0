// The states of an object rule.
#pragma once

#include <cstdint>

#include "engine/grammar/rule.h"

namespace constrain::json {

/// Place of a frame within the text of an object, packed into a Local.
struct ObjectPosition {
  enum Phase : uint32_t { start, open, next, key, colon_before, colon, after, comma_before, closing, end };

  Phase phase;
  uint32_t run = 0;      ///< state of the run of white space
  uint32_t operand = 0;  ///< `key`: the spelling; `colon_before` and `colon`: the label of the
                         ///< member, or that of another with the same values

  static ObjectPosition of(Local state) {
    return {static_cast<Phase>(state & 0xF), static_cast<uint32_t>(state) >> 4, static_cast<uint32_t>(state >> 32)};
  }
  static Local encode(Phase phase, uint32_t run = 0, uint32_t operand = 0) {
    return Local{operand} << 32 | run << 4 | static_cast<uint32_t>(phase);
  }
};

}  // namespace constrain::json
