// Wildcard regions: states from which any text over some characters may follow, so that masks need not walk it.
#pragma once

#include <array>
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

/// A wildcard region at one state; empty by default.
struct WildcardRegion {
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

  CharacterClass characters;
  uint64_t max_length = 0;   ///< every text of up to this many characters may follow
  bool exact = false;        ///< true if no longer text may follow, and the frame cannot be over on the way
  bool by_register = false;  ///< true if MaskHints::outline does not tell the region
  ByteSet leaving;           ///< bytes outside the class that may follow after a text of the region; all bytes if the
                             ///< frame may be over within the region

  bool operator==(const WildcardRegion&) const = default;
};

/// How many characters must follow the texts of a wildcard region, at least.
struct RegionNeeds {
  std::vector<uint64_t> after;                  ///< by the length of a text
  uint64_t most = 0;                            ///< maximum of `after`
  uint64_t again = WildcardRegion::kUnbounded;  ///< from this length on, texts lead to states that longer ones lead to

  /// `needed` characters must follow a text of `length` to a state that was first met after `first` characters.
  void add(uint64_t first, uint64_t length, uint64_t needed);
  /// Length up to which all texts fit into `left` characters.
  uint64_t limit(uint64_t left) const;
};

/// Finds wildcard regions in an automaton, by exploring all states that texts over a class reach.
class WildcardFinder {
 public:
  /// `row` returns the transitions of a state; `needs` the fewest characters that must follow a state, which is
  /// `kUnbounded` where the rule does not permit it; `final` whether the frame may be over there.
  WildcardFinder(std::function<const StateRow&(State)> row, std::function<uint64_t(State)> needs,
                 std::function<bool(State)> final)
      : row_(std::move(row)), needs_(std::move(needs)), final_(std::move(final)) {}

  /// Returns the region at a state; cached.
  const WildcardRegion& from(State start) { return found(start).text; }

  /// Returns what must follow the texts of that region.
  const RegionNeeds& needs(State start) { return found(start).needs; }

  /// True if the region at the state is unbounded, all its texts lead back to the state, and the state refuses the
  /// excluded characters.
  bool leads_back(State state);

  /// True if `leads_back` holds, and the state does not refuse all characters beyond ASCII, with which most tokens
  /// would leave the region at once.
  bool is_loop(State state);

 private:
  /// Smaller classes, and regions with more states, are walked token by token.
  static constexpr int kMinCharacters = 16;
  static constexpr size_t kMaxStates = 1024;

  /// Length from which on no narrower class with a longer region is tried.
  static constexpr uint64_t kEnough = 8;
  static constexpr int kTries = 4;

  /// Most ranges of excluded characters.
  static constexpr size_t kMaxExcluded = 24;

  /// Targets of the characters beyond ASCII; `most` if all but a few of them have one.
  struct Beyond {
    bool most = false;
    std::vector<CharacterClass::Range> excluded;
    std::vector<State> targets;
  };
  struct Found {
    WildcardRegion text;
    RegionNeeds needs;
  };
  class BeyondSearch;
  const Beyond& beyond(State state);
  const Found& found(State start);
  void search(State start, CharacterClass characters, Found& best);
  Found find(State start);
  uint64_t needs_of(State state) const { return state == kDead ? WildcardRegion::kUnbounded : needs_(state); }
  bool usable(State state) const { return needs_of(state) != WildcardRegion::kUnbounded; }
  ByteSet lasting(State start, const ByteSet& bytes);
  Found explore(State start, const CharacterClass& characters, CharacterClass& missing);
  bool covers(const CharacterClass& characters, State state, CharacterClass& missing, ByteSet& leaving);

  std::function<const StateRow&(State)> row_;
  std::function<uint64_t(State)> needs_;
  std::function<bool(State)> final_;
  std::unordered_map<State, Found> found_;
  bool lasting_ = false;  // characters beyond ASCII after which few others may follow are left out
  std::array<std::unordered_map<State, Beyond>, 2> beyond_;  // without them, and with them
};

}  // namespace constrain
