// The keys of one object schema: known names, and the classes that other keys fall into.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/arena.h"
#include "engine/base/interner.h"
#include "engine/base/memory_account.h"
#include "engine/base/stable_vector.h"
#include "engine/json/object/key_language.h"
#include "engine/text/sorted_words.h"

namespace constrain::json {

/// Reads a key's content (UTF-8) byte by byte, and tracks which names and classes it may become.
///
/// States are numbered on first use. Growing needs a lock; a KeyState is immutable, and read without one.
class KeyAutomaton {
 public:
  /// `names[i]` is the name with index i, `classes[i]` the keys of class i. Classes are disjoint; a key that is a name
  /// is in no class.
  KeyAutomaton(const std::vector<std::string>& names, std::vector<KeyLanguagePtr> classes);

  struct KeyState {
    uint32_t length = 0;                ///< bytes of the names read so far
    uint32_t low = 0, high = 0;         ///< names with this prefix, as a range of `sorted`
    std::optional<uint32_t> name;       ///< name that ends here
    std::optional<uint32_t> key_class;  ///< class of the key that ends here, unless it is a name
    std::vector<uint32_t> classes;      ///< classes with keys that continue from here
    std::vector<uint64_t> words;        ///< number of keys of each of these from here, saturating at kManyWords
    uint64_t other_words = 0;           ///< and of all of them
  };
  static constexpr uint64_t kManyWords = KeyLanguage::kManyWords;

  State start() const { return 0; }
  /// Row of target states, or kDead.
  const StateRow& row(State state);
  const KeyState& state(State state) const { return states_[state]; }
  /// The state on whose row that of `state` is based: that of its classes, without names. `kDead` if there is no other.
  State nameless(State state);
  /// Calls `use(byte, target)` for the bytes by which names go on from a state.
  template <class Use>
  void for_each_name(State state, const Use& use);
  /// Names in byte order, as indices.
  const std::vector<uint32_t>& sorted() const { return sorted_; }
  /// The names in that order.
  const SortedWords& words() const { return words_; }
  /// State of a class's own automaton.
  State class_state(State state, size_t key_class) const { return positions_[state][kClasses + key_class]; }
  /// Number of keys of a class from a state of its automaton, saturating at kManyWords.
  uint64_t class_words(size_t key_class, State state) { return classes_[key_class]->count(state); }

 private:
  /// Identity of a state: the names with its prefix, as a range of `sorted_`; the length of that prefix; and one state
  /// of each class's automaton.
  enum PositionWord : size_t { kLow, kHigh, kLength, kClasses };

  State intern();
  State enter(uint32_t low, uint32_t high, uint32_t length, std::span<const State> classes);
  std::vector<const StateRow*> class_rows(State from);
  void fill_nameless(State from, Transitions& row);

  std::vector<uint32_t> sorted_;
  SortedWords words_;
  std::vector<KeyLanguagePtr> classes_;
  SequenceInterner positions_;
  std::vector<uint32_t> position_;  // scratch
  StableVector<KeyState> states_;
  Arena arena_;
  std::vector<const StateRow*> rows_;
  MemoryShare memory_;  // memory of the rows
};

template <class Use>
void KeyAutomaton::for_each_name(State from, const Use& use) {
  const KeyState& at = states_[from];
  const std::vector<const StateRow*> rows = class_rows(from);
  std::vector<State> classes(rows.size());
  uint32_t low = at.low;
  if (at.name) ++low;  // the name that ends here comes first
  while (low < at.high) {
    const uint32_t high = words_.end_of_byte(low, at.high, at.length);
    const uint8_t byte = words_.byte(low, at.length);
    std::ranges::transform(rows, classes.begin(), [&](const StateRow* one) { return one ? (*one)[byte] : kDead; });
    use(byte, enter(low, high, at.length + 1, classes));
    low = high;
  }
}

}  // namespace constrain::json
