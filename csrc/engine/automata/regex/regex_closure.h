// Epsilon closure of the program.
#pragma once

#include "engine/automata/regex/regex_automaton.h"

namespace constrain::regex {

/// A place in the text, with the lookaround results there.
struct RegexAutomaton::Place {
  bool at_start = false;
  std::vector<bool> behind = {};                         ///< by tracker: accepts here
  std::vector<std::pair<Pc, Configuration>> ahead = {};  ///< lookaheads that begin here
  std::vector<std::pair<Configuration, Configuration>> stepped =
      {};  ///< configurations of conditions, before and after
};

/// Collects threads depth first, so that preferred ones come first. Serves all threads of one step.
class RegexAutomaton::Closure {
 public:
  Closure(RegexAutomaton& owner, Place& place, bool ordered, std::vector<Thread>& out)
      : owner_(owner), place_(place), ordered_(ordered), out_(out) {}

  /// Returns false after a match, which takes precedence over everything that would follow.
  bool add(Pc pc, Condition condition);
  void add(const Thread& thread);

 private:
  struct Visit {
    Pc pc;
    Condition condition;
    uint64_t entered;  // loops whose body began here
  };

  bool first_visit(const Visit& visit);
  bool expand(const Visit& visit);
  void expand_loop(const Visit& visit, const Instruction& loop);

  RegexAutomaton& owner_;
  Place& place_;
  bool ordered_;
  std::vector<Thread>& out_;
  std::vector<Visit> pending_;
  SequenceInterner visited_, added_;
};

}  // namespace constrain::regex
