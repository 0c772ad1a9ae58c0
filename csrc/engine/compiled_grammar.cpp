#include "engine/compiled_grammar.h"

#include <algorithm>
#include <utility>

#include "engine/deadline.h"
#include "engine/errors.h"

namespace constrain {

namespace {

/// Of a state and its entry in the index.
constexpr size_t kStateBytes = 120;

/// Where so many bytes lead to one state it is remembered for the row.
constexpr int kMany = 16;

size_t bytes_of(const Row& row) {
  size_t bytes = sizeof(Row);
  for (const auto& list : row.lists) {
    bytes += sizeof(list) + list.capacity() * sizeof(Option);
    for (const Option& option : list) bytes += option.chain.capacity() * sizeof(StateId);
  }
  return bytes;
}

}  // namespace

CompiledGrammar::CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      limits_(limits),
      masks_(limits.mask_bytes),
      inners_(limits.mask_bytes) {
  begin();
  bool longer = false;
  for (const auto& rule : grammar_.rules) longer |= rule->refine();
  if (longer) begin();
}

void CompiledGrammar::begin() {
  lengths_ = grammar_.shortest_words();
  if (lengths_[grammar_.root] == kInfinite) {
    throw EmptyLanguage();
  }
  for (const auto& rule : grammar_.rules) {
    rule->prepare(*this, lengths_);
    uses_depth_ |= rule->uses_depth();
  }
  const auto lock = this->lock();
  slots_.clear();
  ids_.clear();
  varieties_.clear();
  auto* done = new Row;
  done->accepting = true;
  slots_.grow().row = done;
  start_ = intern(grammar_.root, grammar_.rules[grammar_.root]->start());
}

StateId CompiledGrammar::intern(RuleId rule, Local local) const {
  const Place key{rule, local};
  if (const auto it = ids_.find(key); it != ids_.end()) return it->second;
  const auto state = static_cast<StateId>(slots_.size());
  if (state >= std::min<uint64_t>(limits_.max_states, slots_.kCapacity)) {
    throw ResourceLimit("max_states", limits_.max_states, "while matching");
  }
  memory_.add(kStateBytes);
  Slot& slot = slots_.grow();
  slot.rule = grammar_.rules[rule].get();
  slot.id = rule;
  slot.local = local;
  ids_.emplace(key, state);
  return state;
}

FreeText CompiledGrammar::free_text(StateId state, Reg reg) const {
  const Slot& slot = this->slot(state);
  if (!slot.rule) return {};
  const auto lock = this->lock();
  return slot.rule->free_text(slot.local, reg);
}

bool CompiledGrammar::describe(StateId state, Reg reg, uint32_t depth, Detail detail,
                               std::vector<uint64_t>& out) const {
  const size_t first = out.size();
  out.push_back(state);
  if (uses_depth_) out.push_back(depth);
  const Slot& slot = this->slot(state);
  const auto tell = [&] {
    if (detail == Detail::outline && slot.rule->outline(slot.local, reg, out)) return true;
    return slot.rule->describe(slot.local, reg, vocabulary_->longest_token(), out);
  };
  if (slot.rule && !tell()) return false;
  out[first] |= (out.size() - first) << 32;
  return true;
}

bool CompiledGrammar::describe_portably(StateId state, Reg reg, std::vector<uint64_t>& out) const {
  const Slot& slot = this->slot(state);
  if (!slot.rule || !slot.rule->portable()) return false;
  out.assign({slot.rule->portable(), slot.local});
  return slot.rule->describe(slot.local, reg, vocabulary_->longest_token(), out);
}

uint64_t CompiledGrammar::remaining(StateId state, Reg reg) const {
  if (state == kDone) return 0;
  const auto lock = this->lock();
  const Slot& slot = this->slot(state);
  return slot.rule->remaining(slot.local, reg, lengths_);
}

StateId CompiledGrammar::entry(RuleId rule) const {
  const auto lock = this->lock();
  return intern(rule, grammar_.rules[rule]->start());
}

uint64_t CompiledGrammar::variety(StateId state, Reg reg) const {
  if (state == kDone) return 1;
  const auto lock = this->lock();
  const Slot& slot = this->slot(state);
  return slot.rule->variety(slot.local, reg, *this);
}

uint64_t CompiledGrammar::variety_of(RuleId rule) const {
  const auto lock = this->lock();
  if (lengths_[rule] == kInfinite) return 0;
  // A rule that is being looked at counts for one value, so that recursion ends.
  const auto [it, added] = varieties_.try_emplace(rule, 1);
  if (!added) return it->second;
  const uint64_t variety = grammar_.rules[rule]->variety(grammar_.rules[rule]->start(), 0, *this);
  return varieties_[rule] = variety;
}

uint64_t CompiledGrammar::growth(StateId state, Reg reg) const {
  const Slot& slot = this->slot(state);
  if (!slot.rule) return kInfinite;
  const auto lock = this->lock();
  return slot.rule->growth(slot.local, reg, lengths_);
}

size_t CompiledGrammar::bytes() const { return (account_ ? account_->bytes() : 0) + masks_.bytes() + inners_.bytes(); }

const Row& CompiledGrammar::build(StateId state) const {
  const auto lock = this->lock();
  const MemoryAccount::Scope scope(account_);
  return build_locked(state);
}

bool CompiledGrammar::is_final(StateId state) const {
  Slot& slot = this->slot(state);
  if (slot.final == Slot::Final::unknown) {
    slot.final = slot.rule->final(slot.local, lengths_) ? Slot::Final::yes : Slot::Final::no;
  }
  return slot.final == Slot::Final::yes;
}

const Row& CompiledGrammar::build_locked(StateId state) const {
  Slot& slot = this->slot(state);
  if (const Row* row = slot.row.load(std::memory_order_relaxed)) return *row;

  ++counters_.rows;
  auto row = std::make_unique<Row>();
  RangeOptions options;
  options.reserve(kMany);
  std::vector<Local> visited;
  add_options(slot.id, slot.local, *row, options, visited);
  assemble(options, *row);
  memory_.add(bytes_of(*row));
  slot.row.store(row.get(), std::memory_order_release);
  return *row.release();
}

/// Cuts the bytes where some range begins or ends: between two cuts every byte has the same options.
void CompiledGrammar::assemble(const RangeOptions& options, Row& row) const {
  std::array<bool, 257> cuts{};
  std::vector<std::pair<StateId, int>> targets;  // and how many bytes lead there
  for (const RangeOption& range : options) cuts[range.first] = cuts[range.last + 1] = true;
  std::vector<Option> list;
  for (int begin = 0, end; begin < 256; begin = end) {
    for (end = begin + 1; end < 256 && !cuts[end];) ++end;
    list.clear();
    for (const RangeOption& range : options) {
      const bool covers = range.first <= begin && begin <= range.last;
      if (covers && std::find(list.begin(), list.end(), range.option) == list.end()) list.push_back(range.option);
    }
    if (list.empty()) continue;
    if (list.size() > limits_.max_frames) {
      throw ResourceLimit("max_frames", limits_.max_frames, "by the ways to read one byte");
    }
    const Option& only = list.front();
    uint32_t action = Row::kGoto | only.target;
    if (list.size() > 1 || only.call || only.guard || only.target == kDone) {
      const auto same = std::find(row.lists.begin(), row.lists.end(), list);
      action = static_cast<uint32_t>(same - row.lists.begin()) + 1;
      if (same == row.lists.end()) row.lists.push_back(list);
    }
    for (int byte = begin; byte < end; ++byte) {
      row.action[byte] = action;
      row.bytes.add(static_cast<uint8_t>(byte));
    }
    if (list.size() > 1 || only.call || only.target == kDone) continue;
    auto known = std::ranges::find(targets, only.target, &std::pair<StateId, int>::first);
    if (known == targets.end()) known = targets.insert(known, {only.target, 0});
    known->second += end - begin;
  }
  const auto most = std::ranges::max_element(targets, {}, &std::pair<StateId, int>::second);
  if (most != targets.end() && most->second >= kMany) row.usual = most->first;
}

void CompiledGrammar::add_options(RuleId rule, Local local, Row& row, RangeOptions& options,
                                  std::vector<Local>& visited) const {
  if (std::find(visited.begin(), visited.end(), local) != visited.end()) return;
  visited.push_back(local);
  Deadline::check();
  // States whose only future is to end are never entered: the frame is over at once.
  const auto settle = [&](StateId state) { return is_final(state) ? kDone : state; };

  Expansion expansion;
  grammar_.rules[rule]->expand(local, lengths_, expansion);
  row.accepting |= expansion.accepting;
  for (const auto& edge : expansion.bytes) {
    options.push_back({edge.first, edge.last, {.guard = edge.guard, .target = settle(intern(rule, edge.target))}});
  }
  for (const auto& edge : expansion.calls) {
    const Row& callee = build_locked(intern(edge.callee, grammar_.rules[edge.callee]->start()));
    add_call({.guard = edge.guard, .call = true, .then = settle(intern(rule, edge.then))}, callee, options);
    // An empty word of the callee: go on after it, without a frame.
    if (callee.accepting && !edge.guard) add_options(rule, edge.then, row, options, visited);
  }
}

/// The options of a callee, one frame further down.
void CompiledGrammar::add_call(const Option& call, const Row& callee, RangeOptions& options) const {
  for (int begin = 0, end; begin < 256; begin = end) {
    const uint32_t action = callee.action[begin];
    for (end = begin + 1; end < 256 && callee.action[end] == action;) ++end;
    const auto first = static_cast<uint8_t>(begin), last = static_cast<uint8_t>(end - 1);
    if (action & Row::kGoto) {
      options.push_back({first, last, call});
      options.back().option.target = action & ~Row::kGoto;
    } else if (action) {
      for (const Option& inner : callee.lists[action - 1]) {
        options.push_back({first, last, call});
        Option& option = options.back().option;
        option.target = inner.target;
        if (inner.call && inner.then != kDone) option.chain.push_back(inner.then);
        option.chain.insert(option.chain.end(), inner.chain.begin(), inner.chain.end());
      }
    }
  }
}

}  // namespace constrain
