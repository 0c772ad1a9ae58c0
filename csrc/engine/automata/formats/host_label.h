// Labels of host names, read character by character.
#pragma once

#include <cstdint>

#include "engine/text/idna.h"

namespace constrain {

/// Kinds of labels in a name that has right-to-left labels (RFC 5893, section 2): all others must be `left`.
enum class LabelKind : uint8_t { right, left, plain };

/// A label so far: letters, digits and hyphens, or a U-label (RFC 5891, section 4.2).
class HostLabel {
 public:
  /// Appends a character, unless no label goes on with it.
  bool read(char32_t scalar);
  /// Appends a character beyond ASCII with these properties.
  bool read(const IdnaCharacter& character) { return read(character, 0); }

  /// True if the label may end here.
  bool complete() const;
  LabelKind kind() const;

  uint8_t length() const { return length_; }  ///< in characters
  bool international() const { return international_; }
  bool has_capitals() const { return capitals_; }
  /// True after the letters `xn` and a hyphen, which another hyphen makes the mark of an encoded label.
  bool may_be_encoded() const { return mark_ == 3; }

  /// Drops the length, which only the place of two hyphens depends on; a U-label does not get any then.
  void forget_length();

  // Drop what no longer matters: to characters beyond ASCII, if none follow; whether any may; to `kind`.
  void forget_context() { small_l_ = false; }
  void forget_capitals() { capitals_ = false; }
  void forget_kind() { begins_left_ = ends_well_ = false; }

 private:
  enum Need : uint8_t { kNothing, kSmallL, kGreek, kJapanese, kJoining };
  enum Digits : uint8_t { kNone, kArabic, kExtended };

  bool read(const IdnaCharacter& character, char ascii);
  bool read_hyphen();
  bool meets_need(const IdnaCharacter& character, char ascii);
  bool read_context(Context context);
  bool read_digits(Digits digits);
  bool read_bidi(Bidi bidi);
  bool read_pair(const IdnaCharacter& character) const;
  void track_mark(char ascii);

  uint8_t length_ = 0, mark_ = 0, order_ = 0;
  bool international_ = false, capitals_ = false, hyphen_ = false;
  bool right_ = false, begins_left_ = false, ends_well_ = false, european_ = false, arabic_ = false;
  bool no_hyphens_ = false;  // ... one after the other
  bool small_l_ = false, hebrew_ = false, joins_ = false, takes_marks_ = false;
  Need need_ = kNothing;
  Digits digits_ = kNone;
  uint8_t unused_[6] = {};  // fills up whole words
};
static_assert(sizeof(HostLabel) == 24);

}  // namespace constrain
