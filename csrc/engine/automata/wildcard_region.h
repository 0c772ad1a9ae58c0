// Places where any text over some characters may follow, so that masks need not look at it character by character.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/base/byte_set.h"
#include "engine/text/character_class.h"

namespace constrain {

/// What is known of texts over a class from one state on. The default says nothing.
struct WildcardRegion {
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

  CharacterClass characters;
  uint64_t room = 0;   ///< every text of up to so many characters may follow
  bool exact = false;  ///< and none that is longer, nor may the frame be over on the way
  ByteSet leaving;  ///< bytes outside the class that may follow after a text of the class (of up to `room` characters);
                    ///< all bytes where the frame may be over after such a text

  bool operator==(const WildcardRegion&) const = default;
};

/// Finds free text in an automaton by looking at all states that texts over a class can come to.
class WildcardFinder {
 public:
  /// `row` gives the transitions of a state; `live` tells of states whether the text may come to them at all, `final`
  /// whether the frame may be over there.
  WildcardFinder(std::function<const StateRow&(State)> row, std::function<bool(State)> live,
                 std::function<bool(State)> final)
      : row_(std::move(row)), live_(std::move(live)), final_(std::move(final)) {}

  /// What is free from a state on. Answers are remembered.
  const WildcardRegion& from(State start);

  /// All texts over the class of `from`, which are of any length, lead back to the state, and it refuses the characters
  /// beyond ASCII that the class excludes.
  bool stays(State state);

 private:
  /// Fewer characters, and fewer states than these, are better walked one by one.
  static constexpr int kMinCharacters = 16;
  static constexpr size_t kMaxStates = 1024;

  /// Where there is room for so many, no narrower class is tried, which has more.
  static constexpr uint64_t kEnough = 8;
  static constexpr int kTries = 4;

  /// At most so many ranges of characters are excluded from a class.
  static constexpr size_t kMaxExcluded = 24;

  /// The states after one character that is not of ASCII; `most` where each of them but a few leads to one.
  struct Beyond {
    bool most = false;
    std::vector<CharacterClass::Range> excluded;
    std::vector<State> targets;
  };
  class BeyondSearch;
  const Beyond& beyond(State state);
  WildcardRegion find(State start);
  bool usable(State state) const { return state != kDead && live_(state); }
  ByteSet lasting(State start, const ByteSet& bytes);
  WildcardRegion explore(State start, const CharacterClass& characters, CharacterClass& missing);
  bool covers(const CharacterClass& characters, State state, CharacterClass& missing, ByteSet& leaving);

  std::function<const StateRow&(State)> row_;
  std::function<bool(State)> live_, final_;
  std::unordered_map<State, WildcardRegion> found_;
  std::unordered_map<State, Beyond> beyond_;
};

}  // namespace constrain
