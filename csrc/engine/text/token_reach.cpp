#include "engine/text/token_reach.h"

#include <algorithm>

namespace constrain {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Counts brackets of which each may lie within the one before: an object opens nothing before a colon.
uint32_t count_nested(std::string_view token) {
  uint32_t most = 0, in_array = 0, in_object = 0, before_colon = 0;
  for (const char byte : token) {
    if (byte == ':') in_object = std::max(in_object, before_colon);
    if (byte != '[' && byte != '{') continue;
    uint32_t& opened = byte == '[' ? in_array : before_colon;
    opened = std::max(opened, 1 + std::max(in_array, in_object));
    most = std::max(most, opened);
  }
  return most;
}

/// Position of the quotation mark that ends a string, given what follows its first one.
size_t end_of_string(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at < text.size() ? at : text.npos;
}

/// True if a key, its value and a comma may be in the token.
bool has_member(std::string_view token) {
  for (size_t colon = token.find(':'); colon != token.npos; colon = token.find(':', colon + 1)) {
    const size_t before = token.substr(0, colon).find_last_not_of(kBlanks);
    if (before != token.npos && token[before] == '"') return token.find(',', colon) != token.npos;
  }
  return false;
}

bool in_word(int byte) {
  const int letter = byte | 0x20;
  return byte >= 0x80 || byte == '_' || (byte >= '0' && byte <= '9') || (letter >= 'a' && letter <= 'z');
}

}  // namespace

void TokenReach::add(std::string_view token) {
  count_bytes(token);
  nested = std::max(nested, count_nested(token));
  for (size_t quote = token.find('"'); quote != token.npos; quote = token.find('"', quote + 1)) {
    const size_t before = token.substr(0, quote).find_last_not_of(kBlanks);
    if (before == token.npos || (token[before] != ',' && token[before] != '{')) continue;
    const std::string_view key = token.substr(quote + 1);
    const size_t end = end_of_string(key);
    const size_t next = end == key.npos ? key.npos : key.find_first_not_of(kBlanks, end + 1);
    whole_keys |= end != key.npos && (next == key.npos || key[next] == ':');
    // An escape stands for any character, its first byte for none.
    const bool escape = key.starts_with('\\');
    if (end == key.npos && !key.empty() && !escape) keys.add(static_cast<uint8_t>(key.front()));
    if (whole_keys || (escape && key.size() > 1)) keys.fill();
  }
  whole_members |= has_member(token);
}

void TokenReach::count_bytes(std::string_view token) {
  std::array<uint32_t, 256> counts{};
  uint32_t words = 0;
  for (const char one : token) {
    const auto byte = static_cast<uint8_t>(one);
    bytes[byte] = std::max(bytes[byte], ++counts[byte]);
    words += in_word(byte);
  }
  word_bytes = std::max(word_bytes, words);
}

uint64_t TokenReach::count(const ByteSet& among) const {
  uint64_t words = 0, others = 0;
  for (int byte = among.next(0); byte >= 0; byte = among.next(byte + 1)) {
    (in_word(byte) ? words : others) += bytes[static_cast<size_t>(byte)];
  }
  return others + std::min<uint64_t>(words, word_bytes);
}

}  // namespace constrain
