// Which tokens keep a text inside a grammar.
#pragma once

#include <cstdint>

#include "engine/compiled_grammar.h"
#include "engine/configuration.h"

namespace constrain {

/// Sets the bit of every token whose bytes may follow. Clears none, and knows nothing of end-of-sequence tokens.
void compute_mask(const CompiledGrammar& grammar, const Configuration& configuration, uint32_t* mask);

}  // namespace constrain
