#include "engine/schema/length_language.h"

#include <algorithm>
#include <map>

#include "engine/automata/lazy.h"
#include "engine/grammar/rule.h"

namespace constrain::schema {

namespace {

/// Counts scalar values along the automaton of all texts, which knows where each begins.
class LengthLanguage final : public LazyAutomaton {
 public:
  LengthLanguage(uint64_t min, uint64_t max) : min_(min), max_(max), text_(any_text()) {}

  State start() override { return min_ > max_ ? kDead : intern(0, text_->start()); }

  bool accepting(State state) override {
    return states_[state].first >= min_ && text_->accepting(states_[state].second);
  }

 private:
  void fill_row(State state, Transitions& out) override {
    const auto [count, text] = states_[state];
    // Without a maximum, counting beyond the minimum would multiply states.
    const uint64_t more = max_ != kInfinite || count < min_ ? count + 1 : count;
    for_each_range(text_->row(text), [&](uint8_t first, uint8_t last, State to) {
      const bool begins = (first & 0xC0) != 0x80;  // like the others of the range
      const uint64_t after = begins ? more : count;
      out.set(first, last, to == kDead || after > max_ ? kDead : intern(after, to));
    });
  }

  State intern(uint64_t count, State text) {
    const auto [it, added] = ids_.try_emplace({count, text}, static_cast<State>(states_.size()));
    if (added) states_.emplace_back(count, text);
    return it->second;
  }

  uint64_t min_, max_;
  AutomatonPtr text_;
  std::map<std::pair<uint64_t, State>, State> ids_;
  std::vector<std::pair<uint64_t, State>> states_;
};

}  // namespace

AutomatonPtr length_language(uint64_t min, uint64_t max) { return std::make_shared<LengthLanguage>(min, max); }

}  // namespace constrain::schema
