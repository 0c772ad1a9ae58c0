// What the Unicode standard says about characters.
#pragma once

#include <optional>
#include <string_view>

#include "engine/text/charset.h"

namespace constrain {

/// The set of a general category ("Lu", "L", "Letter"...), a script ("Greek") or a binary property ("Alphabetic");
/// `property` is "gc", "sc" or their long names where the pattern gives it ("\p{sc=Greek}"), else empty.
std::optional<CharSet> unicode_set(std::string_view property, std::string_view value);

/// Which characters are equal but for case: by Python's `re`, or by Unicode's simple folding (ECMA-262 with `u`).
enum class CaseRule { python, simple_folding };

/// `set` and all characters that equal one of its members but for case.
CharSet fold_case(const CharSet& set, CaseRule rule);

}  // namespace constrain
