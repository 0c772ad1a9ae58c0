// White space in JSON texts.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace constrain::json {

/// Layout of a document. All layouts but `any` bound every run of white space.
struct Whitespace {
  enum class Mode {
    compact,  ///< no white space
    single,   ///< at most one space after `,` and `:`
    bounded,  ///< after `{ [ , :` and before `} ]`: up to two spaces, or a line break and up to 40 spaces or tabs
    indent,   ///< as a pretty printer with `width` spaces a level writes it
    any       ///< any white space between tokens
  };
  Mode mode = Mode::bounded;
  uint32_t width = 2;  ///< for `indent`

  /// Positions: after an opening bracket (`opening`), after a comma (`item`), after a colon (`value`), before a closing
  /// bracket that follows an item (`closing`), before a comma or a colon (`before`).
  enum class Slot { opening, item, value, closing, before };
};

/// A small automaton for one run of white space; state 0 is its start. A run of `indent` is a line break and spaces:
/// the state counts them, and the depth of the frame decides where it ends.
class WhitespaceRun {
 public:
  explicit WhitespaceRun(Whitespace whitespace) : whitespace_(whitespace) {}

  static constexpr uint32_t kStart = 0;

  struct Step {
    uint8_t byte;
    uint32_t to;
  };

  /// Bytes that may follow in a slot, with their target states.
  std::vector<Step> next(Whitespace::Slot slot, uint32_t state) const;

  /// True if the run may end here.
  bool may_end(Whitespace::Slot slot, uint32_t state) const;

  /// A state in which the run is over, and may be followed by what may follow `state`; none if `state` is one, or the
  /// run may not end there.
  std::optional<uint32_t> over(uint32_t state) const;

  /// Fewest bytes before the run may end: a carriage return requires its line feed.
  uint64_t missing(uint32_t state) const {
    return whitespace_.mode == Whitespace::Mode::bounded && state == kCarriageReturn ? 1 : 0;
  }

  /// True if the nesting depth matters: guards compare the spaces of a line with `indent`.
  bool indents() const { return whitespace_.mode == Whitespace::Mode::indent; }

  /// Number of spaces at a state of an indented run.
  static uint32_t spaces(uint32_t state) { return state - 1; }

  /// Number of spaces at the start of a line, `level` brackets deep.
  uint64_t indent(uint64_t level) const { return whitespace_.width * level; }

 private:
  static constexpr uint32_t kSpaces = 2;  // states 1 .. 2: the number of spaces
  static constexpr uint32_t kCarriageReturn = 3, kLineFeed = 4;
  static constexpr uint32_t kMaxIndent = 40;  // states 5 .. 44: spaces or tabs of a new line

  Whitespace whitespace_;
};

}  // namespace constrain::json
