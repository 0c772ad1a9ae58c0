#include "engine/automata/shared_automaton.h"

#include <utility>

#include "engine/base/memory_account.h"

namespace constrain {

namespace {

/// 1 is the language of all strings.
std::atomic<uint64_t> last_id{1};

}  // namespace

SharedAutomaton::SharedAutomaton(AutomatonPtr language, const KnownLengths& known)
    : language_(std::move(language)), id_(++last_id), farthest_(known.farthest), start_(language_->start()) {
  set_shortest(known.shortest);
}

const StateRow& SharedAutomaton::row(State state) {
  if (state < rows_.size()) {
    if (const StateRow* cached = rows_[state].load(std::memory_order_acquire)) return *cached;
  }
  const std::lock_guard lock(mutex_);
  const MemoryAccount::Scope nobody(nullptr);
  while (rows_.size() <= state) rows_.grow();
  const StateRow& made = language_->row(state);
  rows_[state].store(&made, std::memory_order_release);
  return made;
}

bool SharedAutomaton::accepting(State state) {
  const std::lock_guard lock(mutex_);
  return language_->accepting(state);
}

std::optional<uint32_t> SharedAutomaton::shortest(State state, size_t budget) {
  const std::lock_guard lock(mutex_);
  if (const auto cached = shortest_.find(state); cached != shortest_.end()) return cached->second;
  const MemoryAccount::Scope nobody(nullptr);
  const auto quick = language_->shortest(state, budget);
  return shortest_[state] = quick ? *quick : shortest_length(*language_, state, budget);
}

/// Makes a shortest word known, so that none is searched for.
void SharedAutomaton::set_shortest(std::string_view word) {
  State state = start_;
  for (; !word.empty(); word.remove_prefix(1)) {
    shortest_[state] = static_cast<uint32_t>(word.size());
    state = row(state)[static_cast<uint8_t>(word.front())];
  }
}

AutomatonPtr shared_automaton(const std::string& key, const std::function<AutomatonPtr()>& make,
                              const KnownLengths& known) {
  static SharedAutomata cached;
  return cached.get(key, make, known);
}

AutomatonPtr SharedAutomata::get(const std::string& key, const std::function<AutomatonPtr()>& make,
                                 const KnownLengths& known) {
  const std::lock_guard lock(mutex_);
  if (automata_.size() >= max_ && !automata_.contains(key)) automata_.clear();
  std::shared_ptr<SharedAutomaton>& one = automata_[key];
  if (!one || one->overgrown()) {
    const MemoryAccount::Scope nobody(nullptr);
    one = std::make_shared<SharedAutomaton>(make(), known);
  }
  return one;
}

}  // namespace constrain
