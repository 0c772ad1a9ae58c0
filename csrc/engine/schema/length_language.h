// Texts of bounded length.
#pragma once

#include "engine/automata/automaton.h"

namespace constrain::schema {

/// Well-formed UTF-8 of `min` to `max` scalar values.
AutomatonPtr length_language(uint64_t min, uint64_t max);

}  // namespace constrain::schema
