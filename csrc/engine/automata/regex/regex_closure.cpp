#include "engine/automata/regex/regex_closure.h"

#include <array>

namespace constrain::regex {

bool RegexAutomaton::Closure::first_visit(const Visit& visit) {
  const size_t before = visited_.size();
  visited_.intern(std::array{visit.pc, visit.condition, static_cast<uint32_t>(visit.entered),
                             static_cast<uint32_t>(visit.entered >> 32)});
  return visited_.size() > before;
}

bool RegexAutomaton::Closure::add(Pc pc, Condition condition) {
  pending_.push_back({pc, condition, 0});
  while (!pending_.empty()) {
    const Visit visit = pending_.back();
    pending_.pop_back();
    if (first_visit(visit) && !expand(visit)) {
      pending_.clear();
      return false;
    }
  }
  return true;
}

void RegexAutomaton::Closure::add(const Thread& thread) {
  if (ordered_) {
    const size_t before = added_.size();
    added_.intern(std::array{thread.pc, thread.node, thread.condition});
    if (added_.size() == before) return;
  }
  out_.push_back(thread);
}

bool RegexAutomaton::Closure::expand(const Visit& visit) {
  const Instruction& at = owner_.program_.code[visit.pc];
  auto go_on = [&](Pc pc, Condition condition) { pending_.push_back({pc, condition, visit.entered}); };
  switch (at.op) {
    case Op::split:
      for (size_t i = at.targets.size(); i-- > 0;) go_on(at.targets[i], visit.condition);
      return true;
    case Op::loop:
      expand_loop(visit, at);
      return true;
    case Op::look_ahead: {
      const Configuration ahead = owner_.look_ahead(at.target, place_);
      const Condition condition = owner_.with_literal(visit.condition, ahead, at.negative);
      if (condition != kImpossible) go_on(at.next, condition);
      return true;
    }
    case Op::look_behind:
      if (place_.behind[at.target] != at.negative) go_on(at.next, visit.condition);
      return true;
    case Op::text_start:
      if (place_.at_start) go_on(at.next, visit.condition);
      return true;
    default:
      if (owner_.program_.alive[visit.pc]) add(owner_.thread_at(visit.pc, visit.condition));
      return !(ordered_ && at.op == Op::match && visit.condition == kNoCondition);
  }
}

/// Backtracking matchers leave a loop after an empty iteration. Only the order of threads depends on it.
void RegexAutomaton::Closure::expand_loop(const Visit& visit, const Instruction& loop) {
  const uint64_t bit = ordered_ && loop.target < 64 ? uint64_t{1} << loop.target : 0;
  const bool body_was_empty = (visit.entered & bit) != 0;
  for (size_t i = loop.targets.size(); i-- > 0;) {
    const bool leaves = loop.targets[i] == loop.exit;
    if (leaves) {
      pending_.push_back({loop.targets[i], visit.condition, visit.entered & ~bit});
    } else if (!body_was_empty) {
      pending_.push_back({loop.targets[i], visit.condition, visit.entered | bit});
    }
  }
}

}  // namespace constrain::regex
