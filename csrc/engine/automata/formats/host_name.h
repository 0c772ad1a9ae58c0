// Host names (RFC 1123, section 2.1), also international ones (RFC 5890).
#pragma once

#include "engine/automata/automaton.h"
#include "engine/automata/formats/encoded_label.h"

namespace constrain {

/// Host names without A-labels. International labels have few enough characters that all fit once they are encoded.
AutomatonPtr host_names(bool international);

/// Octets of names and labels (RFC 1034), and characters of U-labels, which fit once they are encoded.
inline constexpr uint32_t kMaxName = 253, kMaxLabel = 63, kMaxInternational = 13;

/// JSON strings of host names of any length, with A-labels of any lower-case letters, digits and hyphens. Which of
/// these encode labels is not a regular language. Bytes that never occur in UTF-8 stand for what depends on that, and
/// mark states for those who count characters.
AutomatonPtr encoded_host_names(bool international);

namespace encoded_host_name {

/// Marks of states at the start of a label, and before the last byte of a character.
inline constexpr uint8_t kLabelStart = 0xFC, kLastByte = 0xFD;

/// Each state within an A-label has a transition on one of these bytes, which tells the kinds that the label may have.
inline constexpr uint8_t kFirstMark = 0xF5;
inline constexpr LabelKinds kMarked[] = {bit(LabelKind::right) | bit(LabelKind::left) | bit(LabelKind::plain),
                                         bit(LabelKind::left) | bit(LabelKind::plain),
                                         bit(LabelKind::right) | bit(LabelKind::left)};

/// The dot after a label, by its kind, and the closing quotation mark.
inline constexpr uint8_t kFirstDot = 0xF8, kQuote = 0xFB;

}  // namespace encoded_host_name

}  // namespace constrain
