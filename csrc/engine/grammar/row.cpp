#include "engine/grammar/row.h"

#include <memory>
#include <new>
#include <utility>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

namespace {

/// Fewest bytes to one state for it to become `Row::usual`.
constexpr int kMany = 16;

/// Actions of a row without transitions: white space is on its own, because states that share their transitions may
/// differ in it.
constexpr std::array<uint32_t, 5> kEmptyActions = {0, Row::kOwn, Row::kOwn + 1, Row::kOwn + 2, Row::kOwn + 3};
constexpr Row::Numbers kEmptyNumbers = [] {
  Row::Numbers numbers{};
  uint16_t number = 0;
  for (const uint8_t byte : Row::kWhitespace) numbers[byte] = ++number;
  return numbers;
}();

}  // namespace

/// Scratch memory of this thread. Rows are built recursively, so several may be in use.
class RowMaker::Borrowed {
 public:
  Borrowed() {
    if (free_.empty()) free_.push_back(std::make_unique<Scratch>());
    scratch_ = std::move(free_.back());
    free_.pop_back();
    scratch_->options.clear(), scratch_->visited.clear(), scratch_->lists.clear(), scratch_->ends.clear();
  }
  ~Borrowed() { free_.push_back(std::move(scratch_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  Scratch& operator*() { return *scratch_; }

 private:
  static inline thread_local std::vector<std::unique_ptr<Scratch>> free_;
  std::unique_ptr<Scratch> scratch_;
};

const Row& RowMaker::make(StateId state) {
  ParseTable::Slot& slot = grammar_.slot(state);
  if (const Row* row = slot.row.load(std::memory_order_relaxed)) return *row;

  ++grammar_.row_count_;
  Borrowed borrowed;
  Scratch& scratch = *borrowed;
  Row& row = *new (grammar_.rows_.allocate<Row>(1)) Row;
  expand(slot.id, slot.local, scratch);
  if (const auto other = scratch.expansion.like) {
    const StateId like = grammar_.intern(slot.id, *other);
    extend(make(like), slot.id, row, scratch);
    if (row.run) row.like = like;
  } else {
    add_options(slot.id, slot.local, row, scratch);
    assemble(row, scratch);
  }
  grammar_.memory_.add(sizeof(Row) + scratch.lists.size() * sizeof(Option));
  slot.row.store(&row, std::memory_order_release);
  return row;
}

/// The state to move to; a frame that can only end is popped at once.
StateId RowMaker::target_of(RuleId rule, Local local) const {
  const StateId state = grammar_.intern(rule, local);
  return grammar_.is_final(state) ? kDone : state;
}

void RowMaker::expand(RuleId rule, Local local, Scratch& scratch) const {
  scratch.expansion.clear();
  grammar_.grammar_.rules[rule]->expand(local, grammar_.lengths_, scratch.expansion);
}

/// Makes the row of a state that is like another, except for its own edges.
void RowMaker::extend(const Row& other, RuleId rule, Row& row, Scratch& scratch) const {
  row = other;
  row.run = scratch.expansion.run;
  Row::Numbers* numbers = nullptr;
  for (const auto& edge : scratch.expansion.bytes) {
    const Option option{.guard = edge.guard, .target = target_of(rule, edge.target), .chain = {}};
    const uint32_t before = other.actions[(*other.numbers)[edge.first]];
    row.bytes.add(edge.first, edge.last);
    if (before >= Row::kOwn && !edge.guard) {
      row.own[before - Row::kOwn] = Row::kGoto | option.target;
      continue;
    }
    if (!numbers) {
      numbers = new (grammar_.rows_.allocate<Row::Numbers>(1)) Row::Numbers(*other.numbers);
      grammar_.memory_.add(sizeof(Row::Numbers));
      scratch.actions.assign(other.actions.begin(), other.actions.end());
    }
    std::fill(numbers->begin() + edge.first, numbers->begin() + edge.last + 1, scratch.actions.size());
    scratch.list.assign(1, option);
    scratch.actions.push_back(action_of(row, scratch));
  }
  if (!numbers) return;
  row.run = 0;
  finish(row, *numbers, scratch);
}

/// Adds the options of a state that was expanded.
void RowMaker::add_options(RuleId rule, Local local, Row& row, Scratch& scratch) {
  if (std::ranges::find(scratch.visited, local) != scratch.visited.end()) return;
  scratch.visited.push_back(local);
  Deadline::check();
  row.accepting |= scratch.expansion.accepting;
  for (const auto& edge : scratch.expansion.bytes) {
    scratch.options.push_back(
        {edge.first, edge.last, {.guard = edge.guard, .target = target_of(rule, edge.target), .chain = {}}});
  }
  if (const auto other = scratch.expansion.like) {
    expand(rule, *other, scratch);
    return add_options(rule, *other, row, scratch);
  }
  if (scratch.expansion.calls.empty()) return;
  for (const auto& edge : std::exchange(scratch.expansion.calls, {})) {
    const Row& callee = make(grammar_.entry(edge.callee));
    add_call({.guard = edge.guard, .then = target_of(rule, edge.then), .chain = {}, .call = true}, callee, scratch);
    // The callee accepts the empty word: continue after it without a frame.
    if (!callee.accepting || edge.guard) continue;
    expand(rule, edge.then, scratch);
    add_options(rule, edge.then, row, scratch);
  }
}

/// Adds the options of a callee, one frame deeper.
void RowMaker::add_call(const Option& call, const Row& callee, Scratch& scratch) {
  for (int begin = callee.bytes.next(0), end; begin >= 0; begin = callee.bytes.next(end)) {
    const uint32_t action = callee.action(static_cast<uint8_t>(begin));
    for (end = begin + 1; end < 256 && callee.action(static_cast<uint8_t>(end)) == action;) ++end;
    RangeOption made{static_cast<uint8_t>(begin), static_cast<uint8_t>(end - 1), call};
    if (action & Row::kGoto) {
      made.option.target = action & ~Row::kGoto;
      scratch.options.push_back(made);
      continue;
    }
    for (const Option& inner : callee.lists[action - 1]) {
      made.option.target = inner.target;
      made.option.chain = inner.chain;
      if (inner.call && inner.then != kDone) {
        std::vector<StateId> chain{inner.then};
        chain.insert(chain.end(), inner.chain.begin(), inner.chain.end());
        made.option.chain = copy(chain);
      }
      scratch.options.push_back(made);
    }
  }
}

/// Cuts the bytes where some range begins or ends; bytes between two cuts have the same options.
void RowMaker::assemble(Row& row, Scratch& scratch) {
  auto& [expansion, options, by_first, covering, visited, ranges, actions, list, lists, ends, targets] = scratch;
  by_first.clear(), covering.clear(), ranges.clear(), targets.clear();
  actions.assign(kEmptyActions.begin(), kEmptyActions.end());
  ByteSet cuts;
  for (const RangeOption& range : options) {
    by_first.push_back(&range);
    cuts.add(range.first);
    if (range.last < 255) cuts.add(static_cast<uint8_t>(range.last + 1));
  }
  std::ranges::sort(by_first, [](const RangeOption* a, const RangeOption* b) {
    return a->first != b->first ? a->first < b->first : a < b;  // they are in order in memory
  });
  auto next = by_first.begin();
  for (int begin = 0, end; begin < 256; begin = end) {
    const int cut = cuts.next(begin + 1);
    end = cut < 0 ? 256 : cut;
    std::erase_if(covering, [&](const RangeOption* range) { return range->last < begin; });
    for (; next != by_first.end() && (*next)->first == begin; ++next) {
      covering.insert(std::ranges::upper_bound(covering, *next), *next);
    }
    if (covering.empty()) continue;
    ranges.push_back(static_cast<uint32_t>(begin << 16 | end));
    list.clear();
    for (const RangeOption* range : covering) {
      if (std::ranges::find(list, range->option) == list.end()) list.push_back(range->option);
    }
    actions.push_back(action_of(row, scratch));
    row.bytes.add(static_cast<uint8_t>(begin), static_cast<uint8_t>(end - 1));
    if (list.size() > 1 || list.front().call || list.front().target == kDone) continue;
    auto match = std::ranges::find(targets, list.front().target, &std::pair<StateId, int>::first);
    if (match == targets.end()) match = targets.insert(match, {list.front().target, 0});
    match->second += end - begin;
  }
  finish(row, numbers_of(ranges), scratch);
  const auto most = std::ranges::max_element(targets, {}, &std::pair<StateId, int>::second);
  if (most != targets.end() && most->second >= kMany) row.usual = most->first;
}

/// Numbers the bytes of some ranges in order. Most rows have the ranges of another one, and share its numbers.
const Row::Numbers& RowMaker::numbers_of(std::span<const uint32_t> ranges) const {
  const uint32_t id = grammar_.ranges_->intern(ranges);
  if (id >= grammar_.numbers_.size()) grammar_.numbers_.resize(id + size_t{1});
  if (const Row::Numbers* made = grammar_.numbers_[id]) return *made;
  auto& numbers = *new (grammar_.rows_.allocate<Row::Numbers>(1)) Row::Numbers(kEmptyNumbers);
  auto number = static_cast<uint16_t>(kEmptyActions.size());
  for (const uint32_t range : ranges)
    std::fill(numbers.begin() + (range >> 16), numbers.begin() + (range & 0xFFFF), number++);
  grammar_.memory_.add(sizeof(Row::Numbers));
  return *(grammar_.numbers_[id] = &numbers);
}

/// Returns the action for the options in `list`, which is added to those of the row if it is new.
uint32_t RowMaker::action_of(const Row& row, Scratch& scratch) const {
  const std::vector<Option>& list = scratch.list;
  if (list.size() > grammar_.limits_.max_frames) {
    throw ResourceLimit("max_frames", grammar_.limits_.max_frames, "by the parses of one byte");
  }
  const Option& only = list.front();
  if (list.size() == 1 && !only.call && !only.guard && only.target != kDone) return Row::kGoto | only.target;
  size_t begin = 0;
  for (size_t i = 0; i < scratch.ends.size(); begin = scratch.ends[i++]) {
    const auto earlier = std::span(scratch.lists).subspan(begin, scratch.ends[i] - begin);
    if (std::ranges::equal(earlier, list)) return static_cast<uint32_t>(row.lists.size() + i) + 1;
  }
  scratch.lists.insert(scratch.lists.end(), list.begin(), list.end());
  scratch.ends.push_back(scratch.lists.size());
  return static_cast<uint32_t>(row.lists.size() + scratch.ends.size());
}

/// Stores the actions of a row, and the lists that it adds to those it has.
void RowMaker::finish(Row& row, const Row::Numbers& numbers, const Scratch& scratch) const {
  grammar_.memory_.add(scratch.actions.size() * sizeof(uint32_t));
  row.numbers = &numbers;
  row.actions = copy(scratch.actions);
  const std::span<const Option> options = copy(scratch.lists);
  const size_t count = row.lists.size() + scratch.ends.size();
  auto* lists = grammar_.rows_.allocate<std::span<const Option>>(count);
  auto* next = std::uninitialized_copy(row.lists.begin(), row.lists.end(), lists);
  size_t begin = 0;
  for (const size_t end : scratch.ends) {
    new (next++) std::span(options.subspan(begin, end - begin));
    begin = end;
  }
  row.lists = {lists, count};
}

/// Copies values into the grammar's arena.
template <class T>
std::span<const T> RowMaker::copy(const std::vector<T>& values) const {
  T* made = grammar_.rows_.allocate<T>(values.size());
  std::uninitialized_copy(values.begin(), values.end(), made);
  return {made, values.size()};
}

}  // namespace constrain
