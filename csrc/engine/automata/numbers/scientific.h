// Numbers with an exponent.
#pragma once

#include "engine/automata/numbers/numbers.h"

namespace constrain {

/// Returns spellings `-?d(.d+)?[eE][+-]?d+` with a first digit other than 0, within the bounds of `range` and the
/// values of a double.
AutomatonPtr scientific_numbers(const NumberRange& range);

}  // namespace constrain
