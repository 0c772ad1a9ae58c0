// Tests of the bytes of vocabulary strings, including malformed ones.
#include "engine/tokens/token_text.h"

#include <stdexcept>

#include "check.h"

namespace constrain {

TEST(byte_level_characters_stand_for_bytes) {
  const auto bytes = [](const char* piece) { return token_text(piece, TokenSpelling::byte_level); };
  CHECK(bytes("\u0120hello") == " hello");
  CHECK(bytes("caf\u00C3\u00A9\u010A") == "caf\u00E9\n");
  CHECK(bytes("\u0100\u0143") == std::string("\0\xAD", 2));
  CHECK(bytes("<tool>") == "<tool>");
  CHECK(bytes("<a b>") == "<a b>" && bytes("\u2581") == "\u2581");
  CHECK(bytes("") == "");
}

TEST(marks_stand_for_spaces) {
  const auto text = [](const char* piece) { return token_text(piece, TokenSpelling::sentence_piece); };
  CHECK(text("\u2581\u2581a\u2581") == "  a ");
  CHECK(text("<0x41>") == "<0x41>");
}

TEST(single_bytes_are_written_in_hexadecimal) {
  const auto text = [](const char* piece) { return token_text(piece, TokenSpelling::byte_fallback); };
  CHECK(text("<0x00>") == std::string(1, '\0') && text("<0xfF>") == "\xFF");
  for (const char* piece : {"<0x0G>", "<0x-1>", "<0x 1>", "<0x123>", "<0x1>", "<1x11>", "<0x11)"})
    CHECK(text(piece) == piece);
  CHECK(text("\u2581<0x41>") == " <0x41>");
}

TEST(strings_that_are_no_utf8_are_refused) {
  bool refused = false;
  try {
    token_text("\xC3", TokenSpelling::byte_level);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}

}  // namespace constrain
