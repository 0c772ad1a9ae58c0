// JSON texts, complete or not, that are compared by value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace constrain::json {

/// A style in which values have one spelling, or few.
struct PlainStyle {
  bool sorted = true;   ///< keys are sorted
  bool spaced = false;  ///< white space is required, as in indented documents
};

/// A lower bound on the bytes of texts that have a value, in canonical form.
uint64_t least_length(std::string_view value);

/// Parses a prefix of a JSON text, and tells which value it has or may still have.
///
/// Values are in a canonical form, which is equal exactly if the values are: no white space, members sorted by key,
/// strings with only `\"` and `\\` escaped, numbers as digits and a power of ten.
class ItemText {
 public:
  ItemText() = default;
  explicit ItemText(std::string_view text) {
    for (const char byte : text) read(byte);
  }

  /// Appends a byte of a valid text.
  void read(char byte);

  /// Canonical form of a complete text.
  std::string value() const;

  /// False if no continuation of the text has this value; may be true if none has.
  bool may_become(std::string_view value) const;

  bool in_string() const { return kind_ == Kind::string; }

  /// True if `byte` continues the plain style, which only the part from offset `from` on must follow. Numbers are short
  /// decimals.
  bool goes_on_plainly(char byte, size_t from, PlainStyle style) const;

  /// True if the text may end here in plain style.
  bool ends_plainly(size_t from) const;

 private:
  enum class Kind { none, string, plain };  // `plain`: a number, true, false or null

  struct Member {
    std::string key;  // empty in arrays
    std::string value;
    size_t begin = 0;  // offset of the key
  };

  /// An open array or object.
  struct Level {
    bool object;
    bool separated = false;  // a comma followed the last member
    std::optional<std::string> key;
    size_t key_begin = 0;
    std::vector<Member> members = {};
  };

  void read_in_string(char byte);
  void begin(Kind kind);
  void end_scalar();
  void deliver(std::string value);
  void close();
  bool in_key() const { return in_string() && !levels_.empty() && levels_.back().object && !levels_.back().key; }
  bool in_number() const {
    return kind_ == Kind::plain && (scalar_[0] == '-' || (scalar_[0] >= '0' && scalar_[0] <= '9'));
  }
  bool scalar_may_become(std::string_view value) const;

  size_t size_ = 0;
  std::vector<Level> levels_;
  std::string value_;  // value of a complete text, except for a number at the top level
  // The scalar or key under way. Strings are decoded to canonical form.
  Kind kind_ = Kind::none;
  std::string scalar_;
  size_t scalar_begin_ = 0;
  std::string escape_;  // an incomplete escape sequence
  char last_ = 0;
};

}  // namespace constrain::json
