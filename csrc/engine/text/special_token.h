// Byte encoding of special tokens, such as the markers of a chat.
#pragma once

#include <string>
#include <string_view>

namespace constrain {

/// A byte that never occurs in UTF-8.
inline constexpr char kSpecialMark = '\xFF';

/// Encodes a special token as its name between two marks. So texts of grammars and tries may contain special tokens,
/// and ordinary text is never mistaken for one.
inline std::string special_spelling(std::string_view name) { return kSpecialMark + std::string(name) + kSpecialMark; }

}  // namespace constrain
