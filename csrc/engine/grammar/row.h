// Transition rows of the states of a grammar.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/byte_set.h"
#include "engine/grammar/rule.h"

namespace constrain {

/// A state of some rule, numbered over the whole grammar. kDone is the state of a finished frame.
using StateId = uint32_t;
inline constexpr StateId kDone = 0;

/// One transition of a state on one byte.
struct Option {
  Guard guard = 0;                 ///< evaluated on the frame's own register
  StateId then = kDone;            ///< state of the frame after the call; kDone: a tail call, which pops the frame
  StateId target = kDone;          ///< state of the frame that consumed the byte; kDone: that frame is popped
  std::span<const StateId> chain;  ///< states of the frames between this one and the innermost callee, outermost first
  bool call = false;               ///< a callee consumes the byte

  /// True if the frame itself moves and stays.
  bool stays() const { return !call && target != kDone; }

  bool operator==(const Option& other) const {
    return guard == other.guard && then == other.then && target == other.target && call == other.call &&
           std::ranges::equal(chain, other.chain);
  }
};

/// All transitions of a state.
struct Row {
  /// Bytes with equal actions have one number.
  using Numbers = std::array<uint16_t, 256>;
  static constexpr Numbers kNoNumbers{};
  static constexpr std::array<uint32_t, 1> kNoActions{};
  static constexpr uint32_t kGoto = 0x80000000u, kOwn = 0xFFFFFFFCu;
  static constexpr std::array<uint8_t, 4> kWhitespace = {' ', '\t', '\n', '\r'};

  // Shared by states that differ in white space alone; numbers also by those with the same ranges of bytes.
  const Numbers* numbers = &kNoNumbers;
  std::span<const uint32_t> actions = kNoActions;  ///< by number, an action, or `kOwn` + index into `own`
  std::array<uint32_t, kWhitespace.size()> own{};  ///< actions on white space on which `actions` has none
  std::span<const std::span<const Option>> lists;
  ByteSet bytes;           ///< bytes with an action
  bool accepting = false;  ///< the frame may end here
  StateId usual = kDone;   ///< target of most bytes within the rule, if there are many
  uint32_t run = 0;        ///< Expansion::run
  StateId like = kDone;    ///< if there is a run, the state after it

  /// 0 (nothing), `kGoto | state` (one unguarded move within the rule), or 1 + index into `lists`.
  uint32_t action(uint8_t byte) const {
    const uint32_t action = actions[(*numbers)[byte]];
    return action < kOwn ? action : own[action - kOwn];
  }

  /// The action on a byte of `own`; 0 on others.
  uint32_t own_action(uint8_t byte) const {
    const uint32_t action = actions[(*numbers)[byte]];
    return action < kOwn ? 0 : own[action - kOwn];
  }

  /// The option of an action, if it is the only one and stays in the frame; else null.
  const Option* only_move(uint32_t action) const {
    const std::span<const Option> list = lists[action - 1];
    return list.size() == 1 && list.front().stays() ? &list.front() : nullptr;
  }

  /// The state that a byte leads to within the rule, by the only option there is; else kDone.
  StateId target(uint8_t byte) const {
    const uint32_t action = this->action(byte);
    if (action == 0 || action & kGoto) return action & ~kGoto;
    const Option* only = only_move(action);
    return only ? only->target : kDone;
  }

  /// True if two states of one rule have the same transitions on a byte.
  bool agrees(const Row& other, uint8_t byte) const {
    const uint32_t mine = action(byte), its = other.action(byte);
    if (mine == 0 || its == 0 || ((mine | its) & kGoto)) return mine == its;
    const std::span<const Option> my_list = lists[mine - 1], its_list = other.lists[its - 1];
    return my_list.data() == its_list.data() || std::ranges::equal(my_list, its_list);
  }
};

/// Builds rows, and recursively the rows of callees. Used under the grammar's lock.
class RowMaker {
 public:
  explicit RowMaker(const ParseTable& grammar) : grammar_(grammar) {}

  const Row& make(StateId state);

 private:
  struct RangeOption {
    uint8_t first, last;  ///< on any of these bytes
    Option option;
  };

  /// Working memory for one row.
  struct Scratch {
    Expansion expansion;
    std::vector<RangeOption> options;
    std::vector<const RangeOption*> by_first, covering;
    std::vector<Local> visited;
    std::vector<uint32_t> ranges;   ///< of bytes with equal options: the first byte, and that after the last one
    std::vector<uint32_t> actions;  ///< by number
    std::vector<Option> list, lists;
    std::vector<size_t> ends;                      ///< end of each list in `lists`
    std::vector<std::pair<StateId, int>> targets;  ///< with the number of bytes
  };
  class Borrowed;

  StateId target_of(RuleId rule, Local local) const;
  void expand(RuleId rule, Local local, Scratch& scratch) const;
  void extend(const Row& other, RuleId rule, Row& row, Scratch& scratch) const;
  void add_options(RuleId rule, Local local, Row& row, Scratch& scratch);
  void add_call(const Option& call, const Row& callee, Scratch& scratch);
  void assemble(Row& row, Scratch& scratch);
  const Row::Numbers& numbers_of(std::span<const uint32_t> ranges) const;
  uint32_t action_of(const Row& row, Scratch& scratch) const;
  void finish(Row& row, const Row::Numbers& numbers, const Scratch& scratch) const;
  template <class T>
  std::span<const T> copy(const std::vector<T>& values) const;

  const ParseTable& grammar_;
};

}  // namespace constrain
