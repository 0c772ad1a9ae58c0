// The transitions of one state of an automaton.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/arena.h"
#include "engine/base/byte_set.h"
#include "engine/base/memory_account.h"

namespace constrain {

using State = uint32_t;
inline constexpr State kDead = 0xFFFFFFFFu;

/// Transitions while they are being written: the successor on each byte, or `kDead`.
using Transitions = std::array<State, 256>;

/// Transitions for reading, by ranges of bytes that lead the same way. Most states have few of them, and automata that
/// combine others have many states.
class StateRow {
 public:
  /// The row takes its memory from `arena`, and lives as long; it is counted in `memory`.
  static const StateRow* make(const Transitions& transitions, Arena& arena, MemoryShare& memory);

  /// The successor on a byte, or `kDead`.
  State operator[](uint8_t byte) const {
    return target_data()[std::upper_bound(firsts(), firsts() + ranges_, byte) - firsts() - 1];
  }

  /// Ranges, in the order of their bytes; together they have all bytes.
  size_t ranges() const { return ranges_; }
  uint8_t first(size_t range) const { return firsts()[range]; }
  uint8_t last(size_t range) const { return range + 1 < ranges_ ? static_cast<uint8_t>(first(range + 1) - 1) : 255; }
  State target(size_t range) const { return target_data()[range]; }
  std::span<const State> targets() const { return {target_data(), ranges_}; }

  /// Those that do not lead to `kDead`.
  ByteSet bytes() const {
    ByteSet bytes;
    for (size_t range = 0; range < ranges_; ++range) {
      if (target(range) != kDead) bytes.add(first(range), last(range));
    }
    return bytes;
  }

 private:
  explicit StateRow(uint32_t ranges) : ranges_(ranges) {}

  // They follow the object in memory.
  const State* target_data() const { return reinterpret_cast<const State*>(this + 1); }
  const uint8_t* firsts() const { return reinterpret_cast<const uint8_t*>(target_data() + ranges_); }

  uint32_t ranges_;
};

/// Calls `use(first, last, target)` for all bytes, in order: those next to each other that lead the same way together.
template <class Use>
void for_each_range(const StateRow& row, const Use& use) {
  for (size_t range = 0; range < row.ranges(); ++range) use(row.first(range), row.last(range), row.target(range));
}

/// Calls `use(first, last, targets)` for all bytes, in order: those next to each other that lead the same way in every
/// row together. Where there is no row, everything leads to `kDead`.
template <class Use>
void for_each_common_range(std::span<const StateRow* const> rows, const Use& use) {
  std::vector<size_t> at(rows.size(), 0);
  std::vector<State> targets(rows.size(), kDead);
  for (int first = 0, last; first < 256; first = last + 1) {
    last = 255;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) continue;
      while (rows[i]->last(at[i]) < first) ++at[i];
      targets[i] = rows[i]->target(at[i]);
      last = std::min<int>(last, rows[i]->last(at[i]));
    }
    use(static_cast<uint8_t>(first), static_cast<uint8_t>(last), std::span<const State>(targets));
  }
}

}  // namespace constrain
