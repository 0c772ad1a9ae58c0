// Automata that grammars have in common.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/automata/automaton.h"
#include "engine/base/stable_vector.h"

namespace constrain {

/// An automaton that any number of grammars and threads use at once. What one of them finds out the others need not.
class SharedAutomaton final : public Automaton {
 public:
  explicit SharedAutomaton(AutomatonPtr language);

  State start() override { return start_; }
  const StateRow& row(State state) override;
  bool accepting(State state) override;
  std::optional<uint32_t> shortest(State state, size_t budget) override;

  /// Bytes within which a word ends from any state of a shared language: they are literals, numbers and formats.
  static constexpr uint64_t kFarthest = 64;
  uint64_t shared_id() const override { return id_; }

  /// So many states were looked at that it is better given up with the grammars that have it now.
  bool overgrown() const { return rows_.size() > kMaxRows; }

 private:
  static constexpr size_t kMaxRows = 16'384;

  AutomatonPtr language_;
  uint64_t id_;
  State start_;
  std::mutex mutex_;  // of the language, and to let `rows_` grow
  StableVector<std::atomic<const StateRow*>> rows_;
};

/// The shared automaton of a language, which `key` names for the whole process. Meant for a small number of languages:
/// they are never forgotten.
AutomatonPtr shared_automaton(const std::string& key, const std::function<AutomatonPtr()>& make);

}  // namespace constrain
