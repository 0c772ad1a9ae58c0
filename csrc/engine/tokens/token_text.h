// What the strings of a tokenizer's vocabulary stand for in bytes.
#pragma once

#include <string>
#include <string_view>

namespace constrain {

/// How a tokenizer writes bytes as strings.
enum class TokenSpelling {
  byte_level,      ///< one character for each byte, by the table of GPT-2
  sentence_piece,  ///< text, with U+2581 for a space
  byte_fallback,   ///< the same, and single bytes as <0x00> to <0xFF>
};

/// The bytes of one string of a vocabulary, as they stand in the middle of a text. A string that is not written in the
/// table of GPT-2 stands for itself: tokenizers keep added tokens so.
/// Throws std::invalid_argument where the string is no UTF-8.
std::string token_text(std::string_view piece, TokenSpelling spelling);

}  // namespace constrain
