#include "engine/schema/length_language.h"

#include <array>

#include "engine/automata/lazy.h"
#include "engine/base/interner.h"
#include "engine/grammar/rule.h"

namespace constrain::schema {

namespace {

/// Counts scalar values along the automaton of all texts, which knows where each begins.
class LengthLanguage final : public LazyAutomaton {
 public:
  LengthLanguage(uint64_t min, uint64_t max) : min_(min), max_(max), text_(any_text()) {}

  State start() override { return min_ > max_ ? kDead : intern(0, text_->start()); }

  bool accepting(State state) override {
    const auto [count, text] = counted(state);
    return count >= min_ && text_->accepting(text);
  }

 private:
  struct Counted {
    uint64_t count;  ///< scalar values so far
    State text;
  };

  void fill_row(State state, Transitions& out) override {
    const auto [count, text] = counted(state);
    // Without a maximum, counting beyond the minimum would multiply states.
    const uint64_t more = max_ != kInfinite || count < min_ ? count + 1 : count;
    for_each_range(text_->row(text), [&](uint8_t first, uint8_t last, State to) {
      const bool begins = (first & 0xC0) != 0x80;  // like the others of the range
      const uint64_t after = begins ? more : count;
      out.set(first, last, to == kDead || after > max_ ? kDead : intern(after, to));
    });
  }

  State intern(uint64_t count, State text) {
    return states_.intern(std::array{static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32), text});
  }

  Counted counted(State state) const {
    const auto key = states_[state];
    return {key[0] | uint64_t{key[1]} << 32, key[2]};
  }

  uint64_t min_, max_;
  AutomatonPtr text_;
  SequenceInterner states_;
};

}  // namespace

AutomatonPtr length_language(uint64_t min, uint64_t max) { return std::make_shared<LengthLanguage>(min, max); }

}  // namespace constrain::schema
