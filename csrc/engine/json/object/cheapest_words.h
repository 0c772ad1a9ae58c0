// The shortest keys that a language offers.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// Bytes that a JSON string needs for a text, without its quotes and with no more escapes than it must have.
uint64_t spelled_length(std::string_view text);

/// Finds the words of an automaton in order of their spelled length, and of their spelling where that is the same (A*
/// search), and remembers them.
class CheapestWords {
 public:
  explicit CheapestWords(AutomatonPtr automaton) : automaton_(std::move(automaton)) {}

  /// The `count` cheapest words from a state, fewer where there are no more.
  const std::vector<std::string>& from(State state, size_t count);

 private:
  /// Spelled length of the shortest word from a state.
  uint64_t to_end(State state);

  AutomatonPtr automaton_;
  std::map<State, std::pair<size_t, std::vector<std::string>>> known_;  // with the count that was asked for
  std::unordered_map<State, uint64_t> to_end_;
};

}  // namespace constrain::json
