// Leap seconds as times of RFC 3339.
#pragma once

#include "engine/automata/automaton.h"

namespace constrain {

/// Times of leap seconds, which begin at 23:59:60 UTC, with offsets of whole quarters of an hour, as time zones have
/// them. Their local date is that of UTC, or the next.
AutomatonPtr leap_seconds(bool next_day);

}  // namespace constrain
