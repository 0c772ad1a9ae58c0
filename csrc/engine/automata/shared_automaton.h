// Automata that all grammars of the process share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/automata/automaton.h"
#include "engine/base/stable_vector.h"

namespace constrain {

/// An automaton for concurrent use by any number of grammars and threads.
class SharedAutomaton final : public Automaton {
 public:
  explicit SharedAutomaton(AutomatonPtr language);

  State start() override { return start_; }
  const StateRow& row(State state) override;
  bool accepting(State state) override;
  std::optional<uint32_t> shortest(State state, size_t budget) override;

  /// Makes a shortest word known, so that none is searched for.
  void set_shortest(std::string_view word);

  /// Longest distance to acceptance in a shared language: they are literals, numbers and formats.
  static constexpr uint64_t kFarthest = 64;

  /// Bytes within which, from any state of a shared language, more words than RuleBounds::kItems end, or all there are.
  static constexpr uint64_t kToDiffer = 112;
  uint64_t shared_id() const override { return id_; }

  /// True if the automaton has too many states to keep it for further grammars.
  bool overgrown() const { return rows_.size() > kMaxRows; }

 private:
  static constexpr size_t kMaxRows = 65'536;

  AutomatonPtr language_;
  uint64_t id_;
  State start_;
  std::mutex mutex_;  // guards the language, the growth of `rows_`, and `shortest_`
  StableVector<std::atomic<const StateRow*>> rows_;
  std::unordered_map<State, uint32_t> shortest_;
};

/// Returns the shared automaton of a language, named `key` in the whole process. Meant for few languages: they are
/// never dropped. `shortest` may give a shortest word, if a search for one takes long.
AutomatonPtr shared_automaton(const std::string& key, const std::function<AutomatonPtr()>& make,
                              std::string_view shortest = {});

}  // namespace constrain
