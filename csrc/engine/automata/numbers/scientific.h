// Numbers with an exponent.
#pragma once

#include "engine/automata/numbers/numbers.h"

namespace constrain {

/// Spellings `-?d(.d+)?[eE][+-]?d+` with a first digit other than 0, within the bounds of `range` and the values that a
/// double can hold.
AutomatonPtr scientific_numbers(const NumberRange& range);

}  // namespace constrain
