// Texts of bounded length.
#pragma once

#include "engine/automata/automaton.h"

namespace constrain::schema {

/// Returns the well-formed UTF-8 texts of `min` to `max` scalar values.
AutomatonPtr length_language(uint64_t min, uint64_t max);

}  // namespace constrain::schema
