// Punycode (RFC 3492).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace constrain {

/// Encodes a label, without the mark `xn--`.
std::string encode_punycode(std::u32string_view label);

/// Decodes lower-case letters, digits and hyphens; nullopt if they encode nothing.
std::optional<std::u32string> decode_punycode(std::string_view text);

}  // namespace constrain
