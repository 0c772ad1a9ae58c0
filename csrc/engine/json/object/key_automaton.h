// The keys of one object schema: known names, and the classes that other keys fall into.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/base/arena.h"
#include "engine/base/interner.h"
#include "engine/base/memory_account.h"
#include "engine/base/stable_vector.h"

namespace constrain::json {

/// Reads a key's content (UTF-8) byte by byte, and knows which names and classes it may still become.
///
/// States are numbered as they are met. Growing needs a lock; a KeyState never changes once made, and is read without
/// one.
class KeyAutomaton {
 public:
  /// `names[i]` is the name with index i, `classes[i]` the keys of class i. Classes
  /// are disjoint; a key that is a name is nothing else.
  KeyAutomaton(std::vector<std::string> names, std::vector<AutomatonPtr> classes);

  struct KeyState {
    uint32_t length = 0;                ///< bytes of `names` that were read
    uint32_t low = 0, high = 0;         ///< the names that go on from here, in `sorted`
    std::optional<uint32_t> name;       ///< the name that ends here
    std::optional<uint32_t> key_class;  ///< the class of a key that ends here and is no name
    std::vector<uint32_t> classes;      ///< the classes of which some key goes on from here
    uint64_t other_words = 0;           ///< keys of any class from here, saturating at kManyWords
  };
  static constexpr uint64_t kManyWords = 4096;

  State start() const { return 0; }
  /// The states after each byte, or kDead.
  const StateRow& row(State state);
  const KeyState& state(State state) const { return states_[state]; }
  /// Indices of the names in the order of their bytes.
  const std::vector<uint32_t>& sorted() const { return sorted_; }
  /// The state of a class's own automaton.
  State class_state(State state, size_t key_class) const { return positions_[state][kClasses + key_class]; }
  /// Keys of a class from a state of its own automaton, saturating at kManyWords.
  uint64_t class_words(size_t key_class, State state) { return words_[key_class].count(state); }

 private:
  /// What tells states apart: the names with this prefix, as an interval of `sorted_`; the bytes of that prefix; and
  /// one state of each class's automaton.
  enum PositionWord : size_t { kLow, kHigh, kLength, kClasses };

  State intern();
  State enter(uint32_t low, uint32_t high, uint32_t length, std::span<const State> classes);
  std::vector<const StateRow*> class_rows(State from);
  void fill_nameless(State from, Transitions& row);
  void add_names(State from, Transitions& row);

  std::vector<std::string> names_;
  std::vector<uint32_t> sorted_;
  std::vector<AutomatonPtr> classes_;
  SequenceInterner positions_;
  std::vector<uint32_t> position_;  // that is being put together
  StableVector<KeyState> states_;
  Arena arena_;
  std::vector<const StateRow*> rows_;
  MemoryShare memory_;              // of the rows
  std::vector<WordCounter> words_;  // by class
};

}  // namespace constrain::json
