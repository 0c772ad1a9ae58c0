// Shortest words of a language of keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/automata/automaton.h"

namespace constrain::json {

/// Bytes of a text in a JSON string with minimal escapes, without quotes.
uint64_t escaped_length(std::string_view text);

/// Enumerates the words of an automaton by escaped length, then spelling (A* search). Caches its results.
class CheapestWords {
 public:
  explicit CheapestWords(AutomatonPtr automaton) : automaton_(std::move(automaton)) {}

  /// Returns the `count` cheapest words from a state; fewer if there are no more.
  const std::vector<std::string>& from(State state, size_t count);

 private:
  /// Escaped length of the shortest word from a state.
  uint64_t to_end(State state);
  std::optional<uint64_t> known_to_end(State state) const;

  AutomatonPtr automaton_;
  std::map<State, std::pair<size_t, std::vector<std::string>>> cache_;  // with the requested count
  std::unordered_map<State, uint64_t> to_end_;
};

}  // namespace constrain::json
