// Reference tokens of JSON pointers (RFC 6901), for naming the parts of a schema.
#pragma once

#include <string>
#include <string_view>

namespace constrain::schema {

inline std::string escape_token(std::string_view token) {
  std::string out;
  for (const char c : token) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

inline std::string unescape_token(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool escaped = token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1');
    out += !escaped ? token[i] : token[++i] == '0' ? '~' : '/';
  }
  return out;
}

inline std::string item_step(std::string_view keyword, size_t index) {
  return std::string(keyword) + "/" + std::to_string(index);
}

inline std::string member_step(std::string_view keyword, std::string_view name) {
  return std::string(keyword) + "/" + escape_token(name);
}

}  // namespace constrain::schema
