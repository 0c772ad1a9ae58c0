// Lazily determinised programs of regular expressions.
#pragma once

#include <array>
#include <memory_resource>
#include <vector>

#include "engine/automata/lazy.h"
#include "engine/automata/regex/regex_program.h"
#include "engine/base/byte_set.h"
#include "engine/base/interner.h"

namespace constrain::regex {

/// A thread of the program: its instruction, its progress in the next character, and its condition on the rest of the
/// text.
struct Thread {
  Pc pc;
  Utf8Forest::Node node;
  uint32_t condition;
};

/// Classes of bytes that the program cannot tell apart, and its tries over these classes.
class ByteClasses {
 public:
  explicit ByteClasses(const Utf8Forest& tries);

  size_t count() const { return representatives_.size(); }
  uint8_t of(uint8_t byte) const { return classes_[byte]; }
  uint8_t first(size_t byte_class) const { return representatives_[byte_class]; }
  int last(size_t byte_class) const { return byte_class + 1 < count() ? first(byte_class + 1) - 1 : 255; }
  Utf8Forest::Node step(const Utf8Forest& tries, Utf8Forest::Node node, size_t byte_class) {
    return steps(tries, node).targets[byte_class];
  }
  /// The classes by which a node leads elsewhere than by the class before them.
  const ByteSet& changes(const Utf8Forest& tries, Utf8Forest::Node node) { return steps(tries, node).changes; }

 private:
  struct Steps {
    std::vector<Utf8Forest::Node> targets;  // by class
    ByteSet changes;
  };
  const Steps& steps(const Utf8Forest& tries, Utf8Forest::Node node);

  std::array<uint8_t, 256> classes_;
  std::vector<uint8_t> representatives_;
  std::vector<Steps> steps_;
};

/// An automaton whose states hold the configurations of all trackers (for lookbehind) and of the pattern.
///
/// A configuration is a list of threads, of which one must accept. Ordered lists put first what a backtracking matcher
/// prefers, and end at the first match: a text is accepted if the preferred match ends at its end. A condition is a set
/// of literals: configurations that must accept the rest of the text, or must not.
class RegexAutomaton : public PrunedAutomaton {
 public:
  RegexAutomaton(Program program, bool ordered);

  bool accepting(State state) override;

  /// First bytes of texts after a match that may turn it into a mismatch, or the other way round.
  ByteSet watched();

 private:
  using Configuration = uint32_t;
  using Condition = uint32_t;
  static constexpr Condition kNoCondition = 0, kImpossible = ~Condition{0};

  struct Place;
  class Closure;

  State raw_start() override;
  void fill_row(State state, Transitions& row) override;
  Verdict glance(State state) override;

  ByteSet changes(Configuration configuration);
  State step(const std::vector<uint32_t>& key, size_t byte_class);
  std::vector<Configuration> step_trackers(const std::vector<uint32_t>& key, size_t byte_class, Place& place);
  bool watches(Configuration configuration, size_t byte_class, Place& place);
  Configuration step(Configuration configuration, size_t byte_class, Place& place, bool ordered);
  void read(Configuration configuration, size_t byte_class, Place& place, bool ordered,
            std::pmr::vector<uint32_t>& successors);
  Configuration close(std::span<const uint32_t> successors, Place& place, bool ordered);
  Condition step(Condition condition, size_t byte_class, Place& place);
  State name(const std::vector<Configuration>& trackers, Configuration configuration);

  Condition with_literal(Condition condition, Configuration configuration, bool negative);
  Configuration look_ahead(Pc target, Place& place);
  Configuration intern(std::vector<Thread> threads, bool ordered);
  void drop_implied(std::vector<Thread>& threads) const;
  bool implies(Condition stronger, Condition weaker) const;
  bool accepts_all(Configuration configuration) const;
  bool accepts_end(Configuration configuration, bool ordered) const;
  bool accepts_end(const Thread& thread) const;
  std::vector<Thread> threads(Configuration configuration) const;
  Thread thread_at(Pc pc, Condition condition) const;

  Program program_;
  bool ordered_;
  ByteClasses classes_;
  SequenceInterner configurations_, conditions_, states_;
  size_t condition_steps_ = 0;   // literals that were advanced
  SequenceInterner successors_;  // threads before their closure, with the verdicts of trackers
  std::vector<Configuration> successor_configurations_;
};

}  // namespace constrain::regex
