// Reference tokens of JSON pointers (RFC 6901), for naming the parts of a schema.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// The way from a value to one below it: a member, if there is a keyword, and a member or item of that.
struct Step {
  static constexpr size_t kNoIndex = SIZE_MAX;

  std::string_view keyword = {};
  const std::string_view* name = nullptr;  ///< of a member
  size_t index = kNoIndex;                 ///< of an item

  /// The reference tokens, each with its slash.
  std::string text() const {
    std::string out;
    if (!keyword.empty()) out.append("/").append(keyword);
    if (name) out.append("/").append(escape_token(*name));
    if (index != kNoIndex) out.append("/").append(std::to_string(index));
    return out;
  }
};

inline Step item_step(std::string_view keyword, size_t index) { return {.keyword = keyword, .index = index}; }

/// `name` must outlive the step.
inline Step member_step(std::string_view keyword, const std::string_view& name) {
  return {.keyword = keyword, .name = &name};
}

}  // namespace constrain::schema
