#include "engine/automata/formats/host_label.h"

#include <algorithm>

namespace constrain {

namespace {

constexpr uint8_t kVirama = 9;  // canonical combining class

constexpr IdnaCharacter kLetter{.bidi = Bidi::left};
constexpr IdnaCharacter kDigit{.bidi = Bidi::european};
constexpr IdnaCharacter kHyphen{.bidi = Bidi::neutral};

}  // namespace

bool HostLabel::read(char32_t scalar) {
  if (scalar >= 0x80) {
    const IdnaCharacter* character = idna_character(scalar);
    return character && read(*character, 0);
  }
  const auto ascii = static_cast<char>(scalar);
  if (ascii == '-') return read_hyphen();
  if (ascii >= '0' && ascii <= '9') return read(kDigit, ascii);
  const bool capital = ascii >= 'A' && ascii <= 'Z';
  if (!capital && !(ascii >= 'a' && ascii <= 'z')) return false;
  if (capital && international_) return false;
  capitals_ |= capital;
  return read(kLetter, ascii);
}

/// The third and fourth character are not both hyphens, unless the label is encoded.
bool HostLabel::read_hyphen() {
  if (length_ == 0 || (hyphen_ && (length_ == 3 || no_hyphens_))) return false;
  return read(kHyphen, '-');
}

bool HostLabel::read(const IdnaCharacter& character, char ascii) {
  if (ascii == 0 && capitals_) return false;
  if (character.is_mark && length_ == 0) return false;
  if (!meets_need(character, ascii) || !read_context(character.context)) return false;
  if (!read_bidi(character.bidi) || !read_pair(character)) return false;
  track_mark(ascii);
  international_ |= ascii == 0;
  hyphen_ = ascii == '-';
  small_l_ = ascii == 'l';
  hebrew_ = character.script == Script::hebrew;
  if (character.joining != Joining::transparent) {
    joins_ = character.joining == Joining::left || character.joining == Joining::both;
  }
  takes_marks_ = character.takes_marks;
  order_ = character.order;
  ++length_;
  return true;
}

bool HostLabel::meets_need(const IdnaCharacter& character, char ascii) {
  const Joining joining = character.joining;
  if (need_ == kJoining && joining == Joining::transparent) return true;
  const bool joins = joining == Joining::right || joining == Joining::both;
  const bool met = need_ == kNothing || (need_ == kSmallL && ascii == 'l') ||
                   (need_ == kGreek && character.script == Script::greek) ||
                   (need_ == kJapanese && character.script == Script::japanese) || (need_ == kJoining && joins);
  need_ = kNothing;
  return met;
}

// RFC 5892, appendix A.
bool HostLabel::read_context(Context context) {
  switch (context) {
    case Context::none:
      return true;
    case Context::middle_dot:
      need_ = kSmallL;
      return small_l_;
    case Context::keraia:
      need_ = kGreek;
      return true;
    case Context::geresh:
      return hebrew_;
    case Context::katakana_dot:
      need_ = kJapanese;  // RFC 5892 wants such a letter anywhere in the label; this is the usual place
      return true;
    case Context::arabic_digit:
      return read_digits(kArabic);
    case Context::extended_digit:
      return read_digits(kExtended);
    case Context::joiner:
      return order_ == kVirama;
    case Context::non_joiner:
      if (order_ == kVirama) return true;
      need_ = kJoining;
      return joins_;
  }
  return false;
}

bool HostLabel::read_digits(Digits digits) {
  if (digits_ != kNone && digits_ != digits) return false;
  digits_ = digits;
  return true;
}

// RFC 5893, section 2. A label that begins with neither direction is no right-to-left label.
bool HostLabel::read_bidi(Bidi bidi) {
  if (length_ == 0) {
    right_ = bidi == Bidi::right;
    begins_left_ = bidi == Bidi::left;
  }
  if (bidi == (right_ ? Bidi::left : Bidi::right) || (bidi == Bidi::arabic && !right_)) return false;
  european_ |= bidi == Bidi::european && right_;
  arabic_ |= bidi == Bidi::arabic;
  if (european_ && arabic_) return false;
  if (bidi != Bidi::mark) ends_well_ = bidi != Bidi::neutral;
  return true;
}

/// Keeps to texts that are in NFC for sure: marks are in canonical order, and nothing follows what it may compose with.
bool HostLabel::read_pair(const IdnaCharacter& character) const {
  if (character.order > 0 && order_ > character.order) return false;
  return !character.ends_pair || takes_marks_;
}

void HostLabel::track_mark(char ascii) {
  constexpr char kMark[] = "xn-";
  mark_ = mark_ == length_ && length_ < 3 && ascii == kMark[length_] ? length_ + 1 : 0;
}

void HostLabel::forget_length() {
  no_hyphens_ = international_;
  length_ = std::min<uint8_t>(length_, international_ ? 1 : 4);
}

bool HostLabel::complete() const { return length_ > 0 && !hyphen_ && need_ == kNothing && (!right_ || ends_well_); }

LabelKind HostLabel::kind() const {
  if (right_) return LabelKind::right;
  return begins_left_ && ends_well_ ? LabelKind::left : LabelKind::plain;
}

}  // namespace constrain
