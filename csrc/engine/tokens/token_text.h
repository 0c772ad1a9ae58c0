// Bytes behind the strings of a tokenizer's vocabulary.
#pragma once

#include <string>
#include <string_view>

namespace constrain {

/// Encodings of bytes in a tokenizer's strings.
enum class TokenSpelling {
  byte_level,      ///< one character for each byte, by GPT-2's table
  sentence_piece,  ///< text, with U+2581 for a space
  byte_fallback,   ///< `sentence_piece`, and single bytes as <0x00> to <0xFF>
};

/// Decodes one string of a vocabulary to the bytes it has in the middle of a text. A string outside GPT-2's table
/// stands for itself, because tokenizers store added tokens as text. Throws std::invalid_argument if the string is not
/// UTF-8.
std::string token_text(std::string_view piece, TokenSpelling spelling);

}  // namespace constrain
