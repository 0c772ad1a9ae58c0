// Texts whose first space the tokenizer's decoder drops.
#pragma once

#include "engine/grammar/rule.h"

namespace constrain {

/// Lets the language of `grammar` be preceded by one space.
void allow_leading_space(Grammar& grammar);

}  // namespace constrain
