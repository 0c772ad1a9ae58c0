#include "engine/automata/state_row.h"

#include <new>

namespace constrain {

const StateRow* StateRow::make(const Transitions& transitions, Arena& arena, MemoryShare& memory) {
  std::array<uint8_t, 256> firsts;
  uint32_t ranges = 0;
  for (size_t byte = 0; byte < transitions.size(); ++byte) {
    if (byte == 0 || transitions[byte] != transitions[byte - 1]) firsts[ranges++] = static_cast<uint8_t>(byte);
  }
  const size_t bytes = sizeof(StateRow) + ranges * (sizeof(State) + 1);
  memory.add(bytes);
  auto* row = new (arena.allocate<std::byte>(bytes)) StateRow(ranges);
  auto* targets = reinterpret_cast<State*>(row + 1);
  for (uint32_t range = 0; range < ranges; ++range) targets[range] = transitions[firsts[range]];
  std::copy_n(firsts.begin(), ranges, reinterpret_cast<uint8_t*>(targets + ranges));
  return row;
}

}  // namespace constrain
