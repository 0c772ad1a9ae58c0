// The standard values of JSON Schema's `format`.
#pragma once

#include <optional>
#include <string_view>

#include "engine/automata/automaton.h"

namespace constrain {

/// A format's language over string content. `inner` is accepted by every common validator, `outer` holds everything
/// that one of them accepts; they are the same object where the format is exact.
struct Format {
  AutomatonPtr inner, outer;
};

/// The format of that name, made when it is first asked for; its automata are shared.
std::optional<Format> find_format(std::string_view name);

}  // namespace constrain
