#include "engine/automata/state_row.h"

#include <new>

namespace constrain {

namespace {

/// Bytes that are compared with the next ones at once.
constexpr size_t kBlock = 16;

}  // namespace

RangeStarts::RangeStarts(const Transitions& transitions) {
  firsts_[count_++] = 0;
  const auto scan = [&](size_t from, size_t end) {
    for (size_t byte = from; byte < end; ++byte) {
      if (transitions[byte] != transitions[byte + 1]) firsts_[count_++] = static_cast<uint8_t>(byte + 1);
    }
  };
  constexpr size_t kLast = 256 - kBlock;
  for (size_t block = 0; block < kLast; block += kBlock) {
    State changes = 0;  // most blocks have none
    for (size_t byte = block; byte < block + kBlock; ++byte) changes |= transitions[byte] ^ transitions[byte + 1];
    if (changes) scan(block, block + kBlock);
  }
  scan(kLast, 255);
}

const StateRow* StateRow::make(const Transitions& transitions, Arena& arena, MemoryShare& memory) {
  const RangeStarts firsts(transitions);
  const auto ranges = static_cast<uint32_t>(firsts.count());
  const size_t bytes = sizeof(StateRow) + ranges * (sizeof(State) + 1);
  memory.add(bytes);
  auto* row = new (arena.allocate<std::byte>(bytes)) StateRow(ranges);
  auto* targets = reinterpret_cast<State*>(row + 1);
  for (uint32_t range = 0; range < ranges; ++range) targets[range] = transitions[firsts[range]];
  std::ranges::copy(firsts, reinterpret_cast<uint8_t*>(targets + ranges));
  return row;
}

}  // namespace constrain
