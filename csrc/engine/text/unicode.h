// Character sets of the Unicode standard.
#pragma once

#include <optional>
#include <string_view>

#include "engine/text/charset.h"

namespace constrain {

/// Returns the set of a general category ("Lu", "L", "Letter"...), a script ("Greek") or a binary property
/// ("Alphabetic"). `property` is "gc", "sc" or their long names if the pattern gives it ("\p{sc=Greek}"), else empty.
std::optional<CharSet> unicode_set(std::string_view property, std::string_view value);

/// Rules of case-insensitive comparison: Python's `re`, or Unicode's simple folding (ECMA-262 with `u`).
enum class CaseRule { python, simple_folding };

/// Adds all characters that differ from a member only in case.
CharSet fold_case(const CharSet& set, CaseRule rule);

}  // namespace constrain
