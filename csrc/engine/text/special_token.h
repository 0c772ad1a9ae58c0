// Special tokens, such as the markers of a chat, as bytes.
#pragma once

#include <string>
#include <string_view>

namespace constrain {

/// A byte that no UTF-8 has.
inline constexpr char kSpecialMark = '\xFF';

/// What stands for a special token wherever there are bytes: its name between two marks. So the texts of grammars may
/// contain special tokens, tries hold them beside the others, and no text is taken for one, nor one for a text.
inline std::string special_spelling(std::string_view name) { return kSpecialMark + std::string(name) + kSpecialMark; }

}  // namespace constrain
