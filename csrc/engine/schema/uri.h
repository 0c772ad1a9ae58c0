// URI references, as far as the identifiers of schemas need them.
#pragma once

#include <string>
#include <string_view>

namespace constrain::schema {

/// RFC 3986 section 5.2: `reference` as seen from `base`, without its fragment.
std::string join_uri(std::string_view base, std::string_view reference);

/// The octets that `%xx` stand for; other text as it is.
std::string percent_decode(std::string_view text);

}  // namespace constrain::schema
