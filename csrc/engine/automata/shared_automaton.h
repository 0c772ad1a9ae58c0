// Automata that all grammars of the process share.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/automata/automaton.h"
#include "engine/base/stable_vector.h"

namespace constrain {

/// Lengths that are known of a language, and need not be searched for.
struct KnownLengths {
  std::string_view shortest = {};  ///< a shortest word, if a search for one takes long
  uint64_t farthest = 64;          ///< bounds the shortest words from all states: of literals, numbers and formats
};

/// An automaton for concurrent use by any number of grammars and threads.
class SharedAutomaton final : public Automaton {
 public:
  explicit SharedAutomaton(AutomatonPtr language, const KnownLengths& known = {});

  State start() override { return start_; }
  const StateRow& row(State state) override;
  bool accepting(State state) override;
  std::optional<uint32_t> shortest(State state, size_t budget) override;

  uint64_t farthest() const override { return farthest_; }

  /// Bytes within which, from any state of a shared language, more words than RuleBounds::kItems end, or all there are.
  static constexpr uint64_t kToDiffer = 112;
  uint64_t shared_id() const override { return id_; }

  /// True if the automaton has too many states to keep it for further grammars.
  bool overgrown() const { return rows_.size() > kMaxRows; }

 private:
  static constexpr size_t kMaxRows = 65'536;

  void set_shortest(std::string_view word);

  AutomatonPtr language_;
  uint64_t id_, farthest_;
  State start_;
  std::mutex mutex_;  // guards the language, the growth of `rows_`, and `shortest_`
  StableVector<std::atomic<const StateRow*>> rows_;
  std::unordered_map<State, uint32_t> shortest_;
};

/// The shared automata of languages by their names, of which there are few, or many of one kind. Thread-safe.
class SharedAutomata {
 public:
  /// Once there are `max` automata, they are forgotten, and live on in the grammars that have them.
  explicit SharedAutomata(size_t max = std::numeric_limits<size_t>::max()) : max_(max) {}

  AutomatonPtr get(const std::string& key, const std::function<AutomatonPtr()>& make, const KnownLengths& known = {});

 private:
  size_t max_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<SharedAutomaton>> automata_;
};

/// Returns the shared automaton of a language, named `key` in the whole process. Meant for few languages: they are
/// never dropped.
AutomatonPtr shared_automaton(const std::string& key, const std::function<AutomatonPtr()>& make,
                              const KnownLengths& known = {});

}  // namespace constrain
