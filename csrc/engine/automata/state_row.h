// The transitions of one state of an automaton.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/arena.h"
#include "engine/base/byte_set.h"
#include "engine/base/memory_account.h"
#include "engine/base/scratch_list.h"

namespace constrain {

using State = uint32_t;
inline constexpr State kDead = 0xFFFFFFFFu;

/// Transitions while they are being written: the successor on each byte, at first `kDead`.
class Transitions {
 public:
  Transitions() { targets_.fill(kDead); }

  State operator[](uint8_t byte) const { return targets_[byte]; }

  /// Sets the successor on the bytes from `first` to `last`.
  void set(int first, int last, State target) {
    std::fill(targets_.begin() + first, targets_.begin() + last + 1, target);
    cuts_.add(static_cast<uint8_t>(first));
    if (last < 255) cuts_.add(static_cast<uint8_t>(last + 1));
  }
  void set(int byte, State target) { set(byte, byte, target); }

  /// First bytes of the ranges of bytes with one target.
  ByteSet firsts() const;

 private:
  std::array<State, 256> targets_;
  ByteSet cuts_;  // where ranges may begin, other than at 0
};

/// An immutable row, stored as ranges of bytes with one target: most states have few ranges, and combined automata have
/// many states.
class StateRow {
 public:
  /// Makes a row in `arena`, counted in `memory`.
  static const StateRow* make(const Transitions& transitions, Arena& arena, MemoryShare& memory);

  /// Target on a byte, or `kDead`.
  State operator[](uint8_t byte) const { return target_data()[range_of(byte)]; }

  /// Number of ranges, which together cover all bytes in order.
  size_t ranges() const { return ranges_; }
  size_t range_of(uint8_t byte) const {
    return static_cast<size_t>(std::upper_bound(firsts(), firsts() + ranges_, byte) - firsts() - 1);
  }
  uint8_t first(size_t range) const { return firsts()[range]; }
  uint8_t last(size_t range) const { return range + 1 < ranges_ ? static_cast<uint8_t>(first(range + 1) - 1) : 255; }
  State target(size_t range) const { return target_data()[range]; }
  std::span<const State> targets() const { return {target_data(), ranges_}; }

  /// Bytes that do not lead to `kDead`.
  ByteSet bytes() const {
    ByteSet bytes;
    for (size_t range = 0; range < ranges_; ++range) {
      if (target(range) != kDead) bytes.add(first(range), last(range));
    }
    return bytes;
  }

 private:
  explicit StateRow(uint32_t ranges) : ranges_(ranges) {}

  // Targets follow the object in memory.
  const State* target_data() const { return reinterpret_cast<const State*>(this + 1); }
  const uint8_t* firsts() const { return reinterpret_cast<const uint8_t*>(target_data() + ranges_); }

  uint32_t ranges_;
};

/// Calls `use(first, last, target)` for the ranges, in order.
template <class Use>
void for_each_range(const StateRow& row, const Use& use) {
  for (size_t range = 0; range < row.ranges(); ++range) use(row.first(range), row.last(range), row.target(range));
}

/// Calls `use(first, last, targets)` for the coarsest ranges on which all rows are constant, in order. A null row leads
/// to `kDead` everywhere.
template <class Use>
void for_each_common_range(std::span<const StateRow* const> rows, const Use& use) {
  ScratchList<size_t, 8> at;
  ScratchList<State, 8> targets;
  at.list.resize(rows.size());
  targets.list.resize(rows.size(), kDead);
  for (int first = 0, last; first < 256; first = last + 1) {
    last = 255;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) continue;
      size_t& range = at.list[i];
      while (rows[i]->last(range) < first) ++range;
      targets.list[i] = rows[i]->target(range);
      last = std::min<int>(last, rows[i]->last(range));
    }
    use(static_cast<uint8_t>(first), static_cast<uint8_t>(last), std::span<const State>(targets.list));
  }
}

}  // namespace constrain
