// Finding the name that a misspelled one was to be.
#pragma once

#include <span>
#include <string_view>

namespace constrain {

/// Finds one of the `known` names that differs from `name` by one edit at most, if case, `_` and `-` do not count;
/// empty if there is none.
std::string_view similar_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace constrain
