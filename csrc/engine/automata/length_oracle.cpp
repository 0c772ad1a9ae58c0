#include <algorithm>
#include <unordered_map>

#include "engine/automata/automaton.h"
#include "engine/automata/lazy.h"
#include "engine/base/errors.h"
#include "engine/base/interner.h"

namespace constrain {

namespace {

/// Computes lengths by walking sets of states, one scalar value a step. Every set has one successor, so the sets form
/// chains that end in cycles; jumps of 2^k steps along them are cached.
class SetChains : public LengthOracle {
 public:
  SetChains(AutomatonPtr automaton, size_t budget) : automaton_(std::move(automaton)), budget_(budget) {}

  bool any_between(State state, uint64_t low, uint64_t high) override {
    if (low > high || state == kDead) return false;
    const uint64_t wait = steps_to_acceptance(jump(name({state}), low));
    return wait != kNever && wait <= high - low;
  }

 private:
  using Set = uint32_t;
  static constexpr uint32_t kUnknown = ~uint32_t{0};
  static constexpr uint64_t kNever = ~uint64_t{0};

  Set name(const std::vector<State>& states) {
    const Set set = sets_.intern(states);
    if (set == waits_.size()) {
      if (sets_.size() > budget_) throw ResourceLimit("search_states", budget_, "while measuring word lengths");
      waits_.push_back(states.empty() ? kNever : uint64_t{kUnknown});
    }
    return set;
  }

  /// Successors over one scalar value. Its first byte determines the number of continuation bytes.
  const std::vector<State>& scalar_successors(State state) {
    const auto [found, fresh] = successors_.try_emplace(state);
    if (fresh) {
      std::vector<State> level[4];
      for_each_range(automaton_->row(state), [&](int first, int last, State to) {
        static constexpr int kLead[] = {0, 0x80, 0xE0, 0xF0,
                                        0x100};  // first bytes, by the number of continuation bytes
        for (size_t more = 0; more < 4 && to != kDead; ++more) {
          if (first < kLead[more + 1] && last >= kLead[more]) level[more].push_back(to);
        }
      });
      for (size_t more = 3; more > 0; --more) {
        sort_unique(level[more]);
        for (State at : level[more]) {
          for (const State target : automaton_->row(at).targets()) {
            if (target != kDead) level[more - 1].push_back(target);
          }
        }
      }
      sort_unique(level[0]);
      found->second = std::move(level[0]);
    }
    return found->second;
  }

  static void sort_unique(std::vector<State>& states) {
    std::ranges::sort(states);
    states.erase(std::unique(states.begin(), states.end()), states.end());
  }

  Set next(Set set) {
    const std::vector<State> states(sets_[set].begin(), sets_[set].end());
    std::vector<State> after;
    for (State state : states) {
      const auto& successors = scalar_successors(state);
      after.insert(after.end(), successors.begin(), successors.end());
    }
    sort_unique(after);
    return name(after);
  }

  Set power_jump(Set set, size_t power) {
    if (jumps_.size() <= power) jumps_.resize(power + 1);
    if (jumps_[power].size() <= set) jumps_[power].resize(sets_.size(), kUnknown);
    if (jumps_[power][set] == kUnknown) {
      const Set target = power == 0 ? next(set) : power_jump(power_jump(set, power - 1), power - 1);
      jumps_[power][set] = target;
    }
    return jumps_[power][set];
  }

  Set jump(Set set, uint64_t steps) {
    for (size_t power = 0; steps != 0; ++power, steps >>= 1) {
      if (steps & 1) set = power_jump(set, power);
    }
    return set;
  }

  bool accepts(Set set) {
    return std::ranges::any_of(sets_[set], [&](State state) { return automaton_->accepting(state); });
  }

  /// Live states reach acceptance, so the chain ends there or at the empty set.
  uint64_t steps_to_acceptance(Set set) {
    std::vector<Set> path;
    while (waits_[set] == kUnknown && !accepts(set)) {
      path.push_back(set);
      set = power_jump(set, 0);
    }
    if (waits_[set] == kUnknown) waits_[set] = 0;
    uint64_t wait = waits_[set];
    for (; !path.empty(); path.pop_back()) waits_[path.back()] = wait = wait == kNever ? kNever : wait + 1;
    return wait;
  }

  AutomatonPtr automaton_;
  size_t budget_;
  SequenceInterner sets_;
  std::vector<uint64_t> waits_;  // steps to acceptance
  std::vector<std::vector<Set>> jumps_;
  std::unordered_map<State, std::vector<State>> successors_;
};

}  // namespace

std::unique_ptr<LengthOracle> length_oracle(AutomatonPtr automaton, size_t budget) {
  return std::make_unique<SetChains>(std::move(automaton), budget);
}

}  // namespace constrain
