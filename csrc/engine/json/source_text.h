// A text that strings may be taken from word for word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/text/suffix_automaton.h"

namespace constrain::json {

/// A text, and what strings of whole scalar values occur in it. Immutable; shared between grammars and threads.
class SourceText {
 public:
  using State = SuffixAutomaton::State;
  static constexpr State kRoot = SuffixAutomaton::kRoot, kNone = SuffixAutomaton::kNone;

  /// Larger texts are refused, see `check_source_size`.
  static constexpr size_t kMaxBytes = 1 << 20;

  /// `text` is well-formed UTF-8, of a size that has been checked.
  explicit SourceText(std::string text);

  /// What a string becomes with one more byte; kNone where it does not occur so. The first one begins a scalar value.
  State step(State state, uint8_t byte) const {
    return state == kRoot && (byte & 0xC0) == 0x80 ? kNone : substrings_.step(state, byte);
  }

  /// The string ends with a whole scalar value.
  bool is_whole(State state) const { return starts_at(substrings_.first_end(state)); }

  /// Scalar values by which the string can be longer at most, without that which is under way.
  uint64_t room(State state) const { return starts_.size() - 1 - begun_[substrings_.first_end(state)]; }

  /// Bytes of JSON that complete the scalar value under way, and spell `more` further ones where the string occurs
  /// first; there must be as many.
  uint64_t spelled_ahead(State state, uint64_t more) const {
    const uint32_t end = substrings_.first_end(state);
    return spelled_[starts_[begun_[end] + more]] - spelled_[end];
  }

  const SuffixAutomaton& substrings() const { return substrings_; }

 private:
  bool starts_at(size_t offset) const {
    return offset == text_.size() || (static_cast<uint8_t>(text_[offset]) & 0xC0) != 0x80;
  }

  std::string text_;
  SuffixAutomaton substrings_;
  MemoryShare memory_;             // of the following
  std::vector<uint32_t> starts_;   // where scalar values begin, and where the text ends
  std::vector<uint32_t> begun_;    // by offset: how many begin before it
  std::vector<uint32_t> spelled_;  // by offset: bytes of JSON that what is before it takes
};

using SourceTextPtr = std::shared_ptr<const SourceText>;

/// Throws ResourceLimit where a text is larger than SourceText::kMaxBytes.
void check_source_size(const std::string& text);

/// The strings that occur in a text, as a regular language.
AutomatonPtr strings_of(SourceTextPtr source);

}  // namespace constrain::json
