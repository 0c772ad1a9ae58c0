// Where JSON texts may have white space, and how much of it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace constrain::json {

/// How a document is laid out. All of them bound every run of white space but `any`.
struct Whitespace {
  enum class Mode {
    compact,  ///< none
    single,   ///< at most one space after `,` and `:`
    bounded,  ///< after `{ [ , :` and before `} ]`: up to two spaces, or a line break and up to 40 spaces or tabs
    indent,   ///< exactly as a pretty printer with `width` spaces a level writes it
    any       ///< any white space between tokens
  };
  Mode mode = Mode::bounded;
  uint32_t width = 2;  ///< of `indent`

  /// Positions: after an opening bracket (`opening`), after a comma (`item`), after a colon (`value`), before a closing
  /// bracket that follows an item (`closing`), before a comma or a colon (`before`).
  enum class Slot { opening, item, value, closing, before };
};

/// Progress through one run of white space: a small automaton whose state 0 is the start of the run. A run of `indent`
/// is a line break and spaces; its state counts them, and the depth of the frame says where it ends.
class WhitespaceRun {
 public:
  explicit WhitespaceRun(Whitespace whitespace) : whitespace_(whitespace) {}

  static constexpr uint32_t kStart = 0;

  struct Step {
    uint8_t byte;
    uint32_t to;
  };

  /// Bytes that may follow in a slot, with the states they lead to.
  std::vector<Step> next(Whitespace::Slot slot, uint32_t state) const;

  /// The run may end here, and what it leads up to may follow.
  bool may_end(Whitespace::Slot slot, uint32_t state) const;

  /// Bytes without which the run may not end: a carriage return wants its line feed.
  uint64_t missing(uint32_t state) const {
    return whitespace_.mode == Whitespace::Mode::bounded && state == kCarriageReturn ? 1 : 0;
  }

  /// The depth of nesting decides: guards compare the spaces of a line with `indent`.
  bool indents() const { return whitespace_.mode == Whitespace::Mode::indent; }

  /// Spaces of a line up to a state of an indented run.
  static uint32_t spaces(uint32_t state) { return state - 1; }

  /// Spaces that a line of an indented document starts with, `level` brackets deep.
  uint64_t indent(uint64_t level) const { return whitespace_.width * level; }

 private:
  static constexpr uint32_t kSpaces = 2;  // states 1 .. 2: that many spaces
  static constexpr uint32_t kCarriageReturn = 3, kLineFeed = 4;
  static constexpr uint32_t kMaxIndent = 40;  // states 5 .. 44: spaces or tabs of a new line

  Whitespace whitespace_;
};

}  // namespace constrain::json
