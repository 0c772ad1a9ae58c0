// A language that keys may be from.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "engine/automata/automaton.h"
#include "engine/automata/wildcard_finder.h"
#include "engine/automata/word_bounds.h"
#include "engine/json/object/cheapest_words.h"

namespace constrain::json {

/// An automaton of keys, with what was found about it so far. The objects of a schema share those with the same keys.
///
/// Used under the grammar's lock.
class KeyLanguage {
 public:
  static constexpr uint64_t kManyWords = 4096;

  explicit KeyLanguage(AutomatonPtr automaton) : automaton_(std::move(automaton)) {}
  KeyLanguage(const KeyLanguage&) = delete;
  KeyLanguage& operator=(const KeyLanguage&) = delete;

  Automaton& automaton() const { return *automaton_; }

  /// Number of keys from a state, saturating at kManyWords.
  uint64_t count(State state) { return counter_.count(state); }

  /// Texts within keys. With kManyWords keys from each state, every prefix of a key is a prefix of some new key.
  WildcardFinder& texts() { return texts_; }

  CheapestWords& cheapest() { return cheapest_; }

  /// Bounds on the rests of keys by their escaped lengths, where more than `taken` keys are used; always called with
  /// the same number.
  const std::optional<WordBounds>& bounds(uint64_t taken);

 private:
  AutomatonPtr automaton_;
  WordCounter counter_{automaton_, kManyWords};
  WildcardFinder texts_{[this](State at) -> const StateRow& { return automaton_->row(at); },
                        [this](State at) { return count(at) >= kManyWords ? 0 : kInfinite; },
                        [](State) { return false; }};
  CheapestWords cheapest_{automaton_};
  std::optional<std::optional<WordBounds>> bounds_;
};

using KeyLanguagePtr = std::shared_ptr<KeyLanguage>;

}  // namespace constrain::json
