// Resolution of URI references, for the identifiers of schemas.
#pragma once

#include <string>
#include <string_view>

namespace constrain::schema {

/// RFC 3986 section 5.2: resolves `reference` against `base`, without the fragment.
std::string join_uri(std::string_view base, std::string_view reference);

/// Decodes `%xx`; other text stays as it is.
std::string percent_decode(std::string_view text);

}  // namespace constrain::schema
