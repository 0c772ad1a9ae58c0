#include "engine/automata/state_row.h"

#include <new>

namespace constrain {

ByteSet Transitions::firsts() const {
  ByteSet firsts;
  firsts.add(0);
  for (int cut = cuts_.next(1); cut >= 0; cut = cuts_.next(cut + 1)) {
    const auto byte = static_cast<uint8_t>(cut);
    if (targets_[byte] != targets_[byte - 1]) firsts.add(byte);
  }
  return firsts;
}

const StateRow* StateRow::make(const Transitions& transitions, Arena& arena, MemoryShare& memory) {
  const ByteSet firsts = transitions.firsts();
  const auto ranges = static_cast<uint32_t>(firsts.count());
  const size_t bytes = sizeof(StateRow) + ranges * (sizeof(State) + 1);
  memory.add(bytes);
  auto* row = new (arena.allocate<std::byte>(bytes)) StateRow(ranges);
  auto* target = reinterpret_cast<State*>(row + 1);
  auto* first = reinterpret_cast<uint8_t*>(target + ranges);
  for (int byte = 0; byte >= 0; byte = firsts.next(byte + 1)) {
    *first = static_cast<uint8_t>(byte);
    *target++ = transitions[*first++];
  }
  return row;
}

}  // namespace constrain
