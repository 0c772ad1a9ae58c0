#include "engine/json/whitespace.h"

namespace constrain::json {

std::vector<std::pair<uint8_t, uint32_t>> WhitespaceRun::next(Whitespace::Slot slot, uint32_t state) const {
  using Slot = Whitespace::Slot;
  switch (whitespace_.mode) {
    case Whitespace::Mode::compact:
    case Whitespace::Mode::indent:
      return {};
    case Whitespace::Mode::single:
      if (state != kStart || (slot != Slot::item && slot != Slot::value)) return {};
      return {{' ', 1}};
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

}  // namespace constrain::json
