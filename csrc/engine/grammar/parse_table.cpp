#include "engine/grammar/parse_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"

namespace constrain {

ParseTable::ParseTable(Grammar grammar, TokenSizes tokens, const Limits& limits)
    : grammar_(std::move(grammar)), tokens_(tokens), limits_(limits) {
  begin();
  bool longer = false;
  for (const auto& rule : grammar_.rules) longer |= rule->refine(*this, lengths_);
  if (longer) begin();
}

void ParseTable::begin() {
  lengths_ = grammar_.shortest_words();
  if (lengths_[grammar_.root] == kInfinite) {
    throw EmptyLanguage();
  }
  for (const auto& rule : grammar_.rules) {
    uses_depth_ |= rule->mask_hints().uses_depth();
    remaining_exact_ &= rule->completion_hints().is_remaining_exact();
    remaining_least_ &= rule->completion_hints().is_remaining_least();
  }
  const auto lock = this->lock();
  prepared_.assign(grammar_.rules.size(), false);
  slots_.clear();
  places_.emplace().intern({});  // kDone
  ranges_.emplace(), numbers_.clear();
  varieties_.clear();
  auto* done = new (rows_.allocate<Row>(1)) Row;
  done->accepting = true;
  slots_.grow().row = done;
  start_ = intern(grammar_.root, grammar_.rules[grammar_.root]->start());
}

Rule& ParseTable::prepared(RuleId id) const {
  Rule& rule = *grammar_.rules[id];
  if (!prepared_[id]) {
    const MemoryAccount::Scope scope(account_);
    rule.prepare(*this, lengths_);
    prepared_[id] = true;
  }
  return rule;
}

StateId ParseTable::intern(RuleId rule, Local local) const {
  const std::array place{rule, static_cast<uint32_t>(local), static_cast<uint32_t>(local >> 32)};
  const StateId state = places_->intern(place);
  if (state < slots_.size()) return state;
  if (state >= std::min<uint64_t>(limits_.max_states, slots_.kCapacity)) {
    throw ResourceLimit("max_states", limits_.max_states, "while matching");
  }
  // Earlier places may have no slot yet, if memory ran out.
  for (size_t next = slots_.size(); next <= state; ++next) {
    const std::span<const uint32_t> at = (*places_)[static_cast<uint32_t>(next)];
    Rule& rule = prepared(at[0]);
    Slot& slot = slots_.grow();
    slot.rule = &rule;
    slot.id = at[0];
    slot.local = Local{at[2]} << 32 | at[1];
  }
  return state;
}

WildcardRegion ParseTable::wildcard_region(StateId state, Reg reg) const {
  return ask(state, WildcardRegion(),
             [&](const Slot& at) { return at.rule->mask_hints().wildcard_region(at.local, reg); });
}

bool ParseTable::skip_wildcard(StateId state, Reg& reg, Registers& registers,
                               std::vector<std::string>& exceptions) const {
  return ask(state, false,
             [&](const Slot& at) { return at.rule->mask_hints().skip_wildcard(at.local, reg, registers, exceptions); });
}

bool ParseTable::describe(StateId state, Reg reg, uint32_t depth, Detail detail, std::vector<uint64_t>& out) const {
  const size_t first = out.size();
  out.push_back(state);
  if (uses_depth_) out.push_back(depth);
  const Slot& slot = this->slot(state);
  const auto tell = [&] {
    if (detail == Detail::outline && slot.rule->mask_hints().outline(slot.local, reg, out)) return true;
    return slot.rule->mask_hints().describe(slot.local, reg, tokens_.longest, out);
  };
  if (slot.rule && !tell()) return false;
  out[first] |= (out.size() - first) << 32;
  return true;
}

bool ParseTable::describe_portably(StateId state, Reg reg, std::vector<uint64_t>& out) const {
  const Slot& slot = this->slot(state);
  if (!slot.rule || !slot.rule->mask_hints().portable_id()) return false;
  out.assign({slot.rule->mask_hints().portable_id(), slot.local});
  return slot.rule->mask_hints().describe(slot.local, reg, tokens_.longest, out);
}

uint64_t ParseTable::remaining(StateId state, Reg reg) const {
  return ask(state, uint64_t{0}, [&](const Slot& at) { return at.rule->remaining(at.local, reg, lengths_); });
}

std::vector<ParseTable::Call> ParseTable::calls(StateId state) const {
  const Slot& slot = this->slot(state);
  const Row& row = this->row(state);
  const auto reads = [](const std::span<const Option>& list) { return !list.front().call; };
  if (!slot.rule || row.usual != kDone || row.lists.empty() || std::ranges::any_of(row.lists, reads)) return {};
  const auto lock = this->lock();
  if (!slot.rule->union_of().empty()) return {};  // of JSON values, which do not begin with text
  Expansion edges;
  slot.rule->expand(slot.local, lengths_, edges);
  if (!edges.bytes.empty() || edges.like) return {};
  std::vector<Call> calls;
  for (const auto& edge : edges.calls) {
    const StateId entry = this->entry(edge.callee), then = intern(slot.id, edge.then);
    if (edge.guard || this->row(entry).accepting) return {};
    calls.push_back({entry, is_final(then) ? kDone : then});
  }
  return calls;
}

ByteSet ParseTable::likely_bytes(StateId state, Reg reg) const {
  return ask(state, ByteSet(), [&](const Slot& at) { return at.rule->completion_hints().likely_bytes(at.local, reg); });
}

ByteSet ParseTable::known_bytes(StateId state, Reg reg) const {
  return ask(state, ByteSet(), [&](const Slot& at) { return at.rule->completion_hints().known_bytes(at.local, reg); });
}

StateId ParseTable::entry(RuleId rule) const {
  const auto lock = this->lock();
  return intern(rule, grammar_.rules[rule]->start());
}

uint64_t ParseTable::count_values(StateId state, Reg reg) const {
  return ask(state, uint64_t{1},
             [&](const Slot& at) { return at.rule->completion_hints().count_values(at.local, reg, *this); });
}

uint64_t ParseTable::count_values_of(RuleId rule) const {
  const auto lock = this->lock();
  if (lengths_[rule] == kInfinite) return 0;
  // A rule under evaluation counts as one value, so that recursion ends.
  const auto [it, added] = varieties_.try_emplace(rule, 1);
  if (!added) return it->second;
  const uint64_t variety = prepared(rule).completion_hints().count_values(grammar_.rules[rule]->start(), 0, *this);
  return varieties_[rule] = variety;
}

/// Returns the bounds, computed on first use. Called under the lock.
RuleBounds& ParseTable::bounds() const {
  if (!bounds_) bounds_ = std::make_unique<RuleBounds>(*this, grammar_, lengths_);
  return *bounds_;
}

uint64_t ParseTable::max_waiting(StateId state) const {
  return ask(state, uint64_t{0}, [&](const Slot& at) { return bounds().any_frame(at.id).now; });
}

FrameBounds ParseTable::frame_bounds(StateId state, Reg reg, bool measured) const {
  return ask(state, FrameBounds(), [&](const Slot& at) {
    return measured ? bounds().frame(at.id, at.local, reg) : bounds().any_frame(at.id);
  });
}

uint64_t ParseTable::max_on_top(uint64_t masks) const {
  const auto lock = this->lock();
  return bounds().on_top(masks);
}

uint64_t ParseTable::max_on_top(StateId state) const {
  return ask(state, uint64_t{0}, [&](const Slot& at) { return bounds().on_top_of(at.id); });
}

uint64_t ParseTable::max_to_differ(StateId state) const {
  return ask(state, kInfinite, [&](const Slot& at) { return bounds().to_differ(at.id); });
}

std::optional<const Configuration*> ParseTable::embedded(StateId state, Reg reg) const {
  const Slot& slot = this->slot(state);
  return slot.rule ? slot.rule->completion_hints().embedded(slot.local, reg) : nullptr;
}

const Configuration* ParseTable::make_call(StateId& state, Reg& reg, Registers& registers) const {
  const Slot& slot = this->slot(state);
  const auto call = slot.rule ? slot.rule->completion_hints().as_call(slot.local, reg, registers) : std::nullopt;
  if (!call) return nullptr;
  const auto lock = this->lock();
  state = intern(slot.id, call->then), reg = call->reg;
  return call->inside;
}

Reg ParseTable::ending(StateId state, Reg reg, Registers& registers) const {
  const Slot& slot = this->slot(state);
  return slot.rule ? slot.rule->completion_hints().ending(slot.local, reg, registers) : reg;
}

uint64_t ParseTable::max_growth(StateId state, Reg reg) const {
  return ask(state, kInfinite,
             [&](const Slot& at) { return at.rule->completion_hints().max_growth(at.local, reg, lengths_); });
}

const Row& ParseTable::build(StateId state) const {
  const auto lock = this->lock();
  const MemoryAccount::Scope scope(account_);
  return RowMaker(*this).make(state);
}

bool ParseTable::is_final(StateId state) const {
  Slot& slot = this->slot(state);
  if (slot.final == Slot::Final::unknown) {
    slot.final = slot.rule->is_final(slot.local, lengths_) ? Slot::Final::yes : Slot::Final::no;
  }
  return slot.final == Slot::Final::yes;
}

}  // namespace constrain
