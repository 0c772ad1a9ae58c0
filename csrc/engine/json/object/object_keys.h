// Keys of objects: escapes, and lists of bytes and keys in registers.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "engine/base/byte_set.h"
#include "engine/grammar/registers.h"

namespace constrain::json {

// Keys are written with minimal escapes, so that a key has one spelling.

/// Progress in an escape: none, `\`, `\u`, `\u0`, `\u00`, `\u000`, `\u001`.
enum KeyEscape : uint32_t { kPlain, kBackslash, kU, kU0, kU00, kU000, kU001, kKeyEscapes };

inline constexpr std::string_view kShortLetters = "\"\\bfnrt", kShortBytes = "\"\\\b\f\n\r\t";

/// First byte of the spelling of `rest` from `at` on, including the closing quotation mark.
inline char leaving_byte(std::string_view rest, size_t at) {
  if (at == rest.size()) return '"';
  const auto byte = static_cast<uint8_t>(rest[at]);
  return byte < 0x20 || byte == '"' || byte == '\\' ? '\\' : rest[at];
}

inline uint8_t short_escape(uint8_t letter) {
  return static_cast<uint8_t>(kShortBytes[kShortLetters.find(static_cast<char>(letter))]);
}
inline uint8_t hex_value(uint8_t digit) { return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10; }
inline bool has_short_escape(uint8_t byte) {
  return kShortBytes.find(static_cast<char>(byte)) != std::string_view::npos;
}

/// True if an escape with this progress may become that of `byte`.
inline bool may_escape(uint32_t progress, uint8_t byte) {
  if (progress == kBackslash) return byte < 0x20 || has_short_escape(byte);
  if (byte >= 0x20 || has_short_escape(byte)) return false;
  return progress < kU000 || (progress == kU001) == (byte >= 0x10);
}

/// Bytes left of the escape of a byte.
inline uint64_t escape_rest(uint32_t progress, uint8_t byte) {
  constexpr std::array<uint64_t, kKeyEscapes> kRest = {0, 5, 4, 3, 2, 1, 1};
  return progress == kBackslash && has_short_escape(byte) ? 1 : kRest[progress];
}

/// Stands for any key that was not used before; occurs in no text.
inline constexpr uint8_t kAnyNew = 0xFF;

/// A text as a persistent list of its bytes, last one first.
struct KeyText {
  enum : size_t { kRest, kByte, kLength, kHash, kWords };

  static uint64_t length(Reg text) { return text ? Registers::words(text)[kLength] : 0; }
  static uint64_t hash(Reg text) { return text ? Registers::words(text)[kHash] : 0; }
  static Reg rest(Reg text) { return Registers::words(text)[kRest]; }

  static bool is_any_new(Reg text) { return text && Registers::words(text)[kByte] == kAnyNew; }

  static Reg append(Reg text, uint8_t byte, Registers& registers) {
    const uint64_t hash = (KeyText::hash(text) ^ (byte + 1)) * 0x9FB21C651E98DF25ull;
    return registers.make(std::array<uint64_t, kWords>{text, byte, length(text) + 1, hash ^ hash >> 29});
  }

  static bool equal(Reg a, Reg b) {
    if (hash(a) != hash(b) || length(a) != length(b)) return false;
    for (; a != b; a = rest(a), b = rest(b)) {
      if (Registers::words(a)[kByte] != Registers::words(b)[kByte]) return false;
    }
    return true;
  }

  /// The first bytes of a text, all of them if it is shorter.
  static Reg first(Reg text, uint64_t count) {
    while (length(text) > count) text = rest(text);
    return text;
  }

  static bool starts_with(Reg text, Reg prefix) {
    return length(text) >= length(prefix) && equal(first(text, length(prefix)), prefix);
  }

  /// True if the text begins with `prefix` and one of the bytes.
  static bool goes_on(Reg text, Reg prefix, const ByteSet& bytes) {
    const Reg longer = first(text, length(prefix) + 1);
    if (length(longer) != length(prefix) + 1 || !equal(rest(longer), prefix)) return false;
    return bytes.has(static_cast<uint8_t>(Registers::words(longer)[kByte]));
  }

  static bool spells(Reg text, std::string_view key) {
    if (length(text) != key.size()) return false;
    for (auto byte = key.rbegin(); text; text = rest(text), ++byte) {
      if (Registers::words(text)[kByte] != static_cast<uint8_t>(*byte)) return false;
    }
    return true;
  }

  static std::string string(Reg text) {
    std::string out;
    for (; text; text = rest(text)) out += static_cast<char>(Registers::words(text)[kByte]);
    std::reverse(out.begin(), out.end());
    return out;
  }
};

/// The other keys of an object, with their classes, as a persistent list, last one first.
struct UsedKeys {
  enum : size_t { kRest, kText, kClass, kHash, kWords };

  static uint64_t hash(Reg list) { return list ? Registers::words(list)[kHash] : 0; }
  static Reg rest(Reg list) { return Registers::words(list)[kRest]; }
  static Reg text(Reg list) { return Registers::words(list)[kText]; }

  static uint64_t key_class(Reg list) { return Registers::words(list)[kClass]; }

  static Reg append(Reg list, Reg text, uint32_t key_class, Registers& registers) {
    const uint64_t key = KeyText::hash(text) ^ KeyText::length(text);
    const uint64_t hash = (UsedKeys::hash(list) ^ key) * 0xD6E8FEB86659FD93ull + key_class + 1;
    return registers.make(std::array<uint64_t, kWords>{list, text, key_class, hash ^ hash >> 32});
  }
};

}  // namespace constrain::json
