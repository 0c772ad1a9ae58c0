// The standard values of JSON Schema's `format`.
#pragma once

#include <optional>
#include <string_view>

#include "engine/automata/automaton.h"

namespace constrain {

/// Language of a format over string content. `inner` is accepted by every common validator, `outer` by at least one;
/// both are the same object if the format is exact.
struct Format {
  AutomatonPtr inner, outer;
};

/// Returns the format of a name, made on first use; its automata are shared.
std::optional<Format> find_format(std::string_view name);

}  // namespace constrain
