// JSON texts that are compared by their values, complete or not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace constrain::json {

/// A style in which values have one spelling, or few.
struct PlainStyle {
  bool sorted = true;   ///< keys come in their order
  bool spaced = false;  ///< white space is not left out, because it must be there
};

/// Reads a JSON text, of which only a beginning may be there, and tells which value it has or may still have.
///
/// Values are given in a canonical form, which is equal exactly where the values are: no white space, members in the
/// order of their keys, strings with `\"` and `\\` escaped and nothing else, numbers as digits and a power of ten.
class ItemText {
 public:
  ItemText() = default;
  explicit ItemText(std::string_view text) {
    for (const char byte : text) read(byte);
  }

  /// Reads one more byte of a valid text.
  void read(char byte);

  /// The canonical form of a complete text.
  std::string value() const;

  /// False where no continuation of the text has this value. (Where none has, it may still be true.)
  bool may_become(std::string_view value) const;

  bool in_string() const { return kind_ == Kind::string; }

  /// Whether `byte` goes on in the plain style, of which only what begins at offset `from` or later has to be: numbers
  /// are spelled as short decimals.
  bool goes_on_plainly(char byte, size_t from, PlainStyle style) const;

  /// Whether the text may end here in that style.
  bool ends_plainly(size_t from) const;

 private:
  enum class Kind { none, string, plain };  // plain: a number, true, false or null

  struct Member {
    std::string key;  // empty in arrays
    std::string value;
    size_t begin = 0;  // offset of the key
  };

  /// An array or object that has not ended.
  struct Level {
    bool object;
    bool separated = false;  // by a comma from the last member
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
  std::string value_;  // of a complete text, but for a number at the top
  // The scalar or key being read. Strings are kept in canonical form, as far as they are decoded.
  Kind kind_ = Kind::none;
  std::string scalar_;
  size_t scalar_begin_ = 0;
  std::string escape_;  // an escape sequence that is not complete
  char last_ = 0;
};

}  // namespace constrain::json
