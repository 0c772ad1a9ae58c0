#include "engine/tokens/token_text.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "engine/text/utf8.h"

namespace constrain {

namespace {

/// Characters of GPT-2's byte table: printable bytes are themselves, the others are U+0100 and up, in order.
constexpr size_t kByteCharacters = 0x144;

constexpr std::array<int16_t, kByteCharacters> byte_characters() {
  std::array<int16_t, kByteCharacters> table{};
  table.fill(-1);
  size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table[printable ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return table;
}

std::string from_byte_level(std::string_view piece) {
  static constexpr auto kBytes = byte_characters();
  std::string text;
  for (const char32_t character : decode_utf8(piece)) {
    if (character >= kBytes.size() || kBytes[character] < 0) return std::string(piece);
    text += static_cast<char>(kBytes[character]);
  }
  return text;
}

std::string from_sentence_piece(std::string_view piece) {
  static constexpr std::string_view kSpace = "\u2581";
  std::string text(piece);
  for (size_t at = text.find(kSpace); at != std::string::npos; at = text.find(kSpace, at + 1)) {
    text.replace(at, kSpace.size(), " ");
  }
  return text;
}

/// Parses "<0xNN>"; -1 for anything else.
int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  int byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  return error == std::errc() && end == piece.data() + 5 && byte >= 0 ? byte : -1;
}

}  // namespace

std::string token_text(std::string_view piece, TokenSpelling spelling) {
  if (spelling == TokenSpelling::byte_level) return from_byte_level(piece);
  const int byte = spelling == TokenSpelling::byte_fallback ? fallback_byte(piece) : -1;
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : from_sentence_piece(piece);
}

}  // namespace constrain
