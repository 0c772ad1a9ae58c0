// Source texts that strings are quoted from word for word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/text/suffix_automaton.h"

namespace constrain::json {

/// A text with the automaton of its substrings of whole scalar values. Immutable; grammars and threads share it.
class SourceText {
 public:
  using State = SuffixAutomaton::State;
  static constexpr State kRoot = SuffixAutomaton::kRoot, kNone = SuffixAutomaton::kNone;

  /// Largest text: see `check_source_size`.
  static constexpr size_t kMaxBytes = 1 << 20;

  /// `text` is well-formed UTF-8 of a checked size.
  explicit SourceText(std::string text);

  /// Extends a string by one byte; kNone if it does not occur. The first byte must begin a scalar value.
  State step(State state, uint8_t byte) const {
    return state == kRoot && (byte & 0xC0) == 0x80 ? kNone : substrings_.step(state, byte);
  }

  /// True if the string ends with a whole scalar value.
  bool is_whole(State state) const { return starts_at(substrings_.first_end(state)); }

  /// Upper bound on the scalar values by which the string can grow, without the one under way.
  uint64_t characters_left(State state) const { return starts_.size() - 1 - begun_[substrings_.first_end(state)]; }

  /// Bytes of JSON that complete the scalar value under way and spell `more` further ones, at the first occurrence of
  /// the string. There must be that many.
  uint64_t escaped_ahead(State state, uint64_t more) const {
    const uint32_t end = substrings_.first_end(state);
    return escaped_[starts_[begun_[end] + more]] - escaped_[end];
  }

  const SuffixAutomaton& substrings() const { return substrings_; }

 private:
  bool starts_at(size_t offset) const {
    return offset == text_.size() || (static_cast<uint8_t>(text_[offset]) & 0xC0) != 0x80;
  }

  std::string text_;
  SuffixAutomaton substrings_;
  MemoryShare memory_;             // memory of the tables
  std::vector<uint32_t> starts_;   // offsets of scalar values, and of the end
  std::vector<uint32_t> begun_;    // by offset: scalar values that begin before it
  std::vector<uint32_t> escaped_;  // by offset: bytes of JSON for the text before it
};

using SourceTextPtr = std::shared_ptr<const SourceText>;

/// Throws ResourceLimit if a text is larger than SourceText::kMaxBytes.
void check_source_size(const std::string& text);

/// Returns the regular language of the substrings of a text.
AutomatonPtr strings_of(SourceTextPtr source);

}  // namespace constrain::json
