// Texts whose first space the tokenizer's decoder drops.
#pragma once

#include "engine/grammar/rule.h"

namespace constrain {

/// Lets one space precede the language of `grammar`.
void allow_leading_space(Grammar& grammar);

}  // namespace constrain
