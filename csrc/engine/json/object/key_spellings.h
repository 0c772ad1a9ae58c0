// Keys while they are typed: the content so far, and the progress within an escape.
#pragma once

#include <array>
#include <map>
#include <span>
#include <vector>

#include "engine/base/byte_set.h"
#include "engine/base/stable_vector.h"
#include "engine/json/object/key_automaton.h"
#include "engine/json/object/object_keys.h"

namespace constrain::json {

/// A key being written.
struct KeySpelling {
  State content = 0;
  uint32_t escape = 0;
  std::vector<State> after;      ///< possible contents once the escape is over
  std::vector<ByteSet> escaped;  ///< for each of them, the bytes that the escape may spell

  std::span<const State> contents() const { return escape ? std::span(after) : std::span(&content, 1); }
};

/// Numbers the spellings of one object's keys; 0 is the empty key. Growing needs a lock, reading does not.
class KeySpellings {
 public:
  /// Forgets all spellings, and starts again with the keys of `keys`, which must outlive this.
  void reset(KeyAutomaton& keys);

  const KeySpelling& operator[](uint64_t id) const { return spellings_[id]; }

  uint32_t intern(State content, uint32_t escape);

  /// The first content met whose escapes lead to the same contents as those of `content`. Few names have escapes, so
  /// most contents need no states of their own for them.
  State with_same_escapes(State content);

 private:
  /// The states after the characters that keys hold only as escapes.
  using Escaped = std::array<State, 0x20 + kShortBytes.size()>;

  KeyAutomaton* keys_ = nullptr;
  StableVector<KeySpelling> spellings_;
  std::vector<std::array<uint32_t, kKeyEscapes>> ids_;  // by content and escape; the number plus 1, or 0
  std::map<Escaped, State> escaping_;                   // contents by the states after their escapes
};

}  // namespace constrain::json
