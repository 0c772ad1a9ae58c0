// The standard values of JSON Schema's `format`.
#pragma once

#include <optional>
#include <string_view>

#include "engine/automata/automaton.h"
#include "engine/automata/shared_automaton.h"

namespace constrain {

/// Language of a format over string content.
struct Format {
  AutomatonPtr inner;  ///< only what the standard of the format defines
  bool exact;          ///< all that it defines, and that common validators accept
};

/// Returns the format of a name, made on first use; its automaton is shared.
std::optional<Format> find_format(std::string_view name);

/// Returns all that the standard of a format defines or a common validator accepts; null if there is no such format.
AutomatonPtr outer_format(std::string_view name);

/// Finds a format whose name is nearly this one; empty if there is none.
std::string_view similar_format(std::string_view name);

/// Lengths of the JSON strings of a format.
KnownLengths string_lengths(std::string_view format);

}  // namespace constrain
