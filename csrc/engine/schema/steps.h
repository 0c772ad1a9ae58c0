// Reference tokens of JSON pointers (RFC 6901), for naming the parts of a schema.
#pragma once

#include <string>

namespace constrain::schema {

inline std::string item_step(const char* keyword, size_t index) {
  return std::string(keyword) + "/" + std::to_string(index);
}

inline std::string member_step(const char* keyword, const std::string& name) {
  std::string out = std::string(keyword) + "/";
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

}  // namespace constrain::schema
