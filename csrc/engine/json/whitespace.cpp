#include "engine/json/whitespace.h"

namespace constrain::json {

std::vector<WhitespaceRun::Step> WhitespaceRun::next(Whitespace::Slot slot, uint32_t state) const {
  using Slot = Whitespace::Slot;
  switch (whitespace_.mode) {
    case Whitespace::Mode::compact:
      return {};
    case Whitespace::Mode::single:
      if (state != kStart || (slot != Slot::item && slot != Slot::value)) return {};
      return {{' ', 1}};
    case Whitespace::Mode::indent:
      if (slot == Slot::before || (slot == Slot::value && state != kStart)) return {};
      if (slot == Slot::value) return {{' ', 1}};
      return {{static_cast<uint8_t>(state == kStart ? '\n' : ' '), state + 1}};
    case Whitespace::Mode::any:
      return {{' ', 1}, {'\t', 1}, {'\n', 1}, {'\r', 1}};
    case Whitespace::Mode::bounded:
      break;
  }
  if (slot == Slot::before) return {};
  if (state == kStart) return {{' ', 1}, {'\r', kCarriageReturn}, {'\n', kLineFeed}};
  if (state < kSpaces) return {{' ', state + 1}};
  if (state == kCarriageReturn) return {{'\n', kLineFeed}};
  if (state >= kLineFeed && state < kLineFeed + kMaxIndent) return {{' ', state + 1}, {'\t', state + 1}};
  return {};
}

bool WhitespaceRun::may_end(Whitespace::Slot slot, uint32_t state) const {
  if (indents()) return slot == Whitespace::Slot::before || state != kStart;
  return whitespace_.mode == Whitespace::Mode::any || state != kCarriageReturn;
}

std::optional<uint32_t> WhitespaceRun::over(uint32_t state) const {
  const bool bounded = whitespace_.mode == Whitespace::Mode::bounded;
  return bounded && state != kSpaces && state != kCarriageReturn ? std::optional(kSpaces) : std::nullopt;
}

}  // namespace constrain::json
