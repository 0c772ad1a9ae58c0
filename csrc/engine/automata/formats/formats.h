// The standard values of JSON Schema's `format`.
#pragma once

#include <optional>
#include <string_view>

#include "engine/automata/automaton.h"
#include "engine/automata/shared_automaton.h"

namespace constrain {

/// Language of a format over string content. `inner` holds only what the standard of the format defines, `outer` all
/// that it defines or a common validator accepts; both are the same object if the format is exact.
struct Format {
  AutomatonPtr inner, outer;
};

/// Returns the format of a name, made on first use; its automata are shared.
std::optional<Format> find_format(std::string_view name);

/// Finds a format whose name is nearly this one; empty if there is none.
std::string_view similar_format(std::string_view name);

/// Lengths of the JSON strings of a format.
KnownLengths string_lengths(std::string_view format);

}  // namespace constrain
