#include "engine/completion/completions.h"

#include <algorithm>
#include <stdexcept>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/grammar/possible_bytes.h"

namespace constrain {

std::string Completions::text(const Configuration& from) {
  std::string text;
  for (const Step* at = &step(&cheapest(from)); at->next; at = &step(at->next)) {
    check_length(text.size());
    text += static_cast<char>(at->byte);
  }
  return text;
}

Completions::Length Completions::measure(const Configuration& from) {
  std::vector<Step*> way;
  Step* const first = &step(&cheapest(from));
  Step* at = first;
  for (; !at->measured; at = &step(at->next)) {
    check_length(way.size());
    way.push_back(at);
  }
  measure_steps(way, at);
  return first->length;
}

void Completions::start_round(const Configuration& from, uint64_t steps, uint64_t frames) {
  ++round_;
  left_ = most_work_ = kInfinite;
  Step* const first = &step(&cheapest(from));
  if (!first->measured) measure_within(from);
  for (Step* at = first; at; at = at->then) at->round = round_;
  left_ = steps, work_ = 0, most_work_ = frames;
}

std::optional<Completions::Length> Completions::measure_within(const Configuration& from) {
  std::vector<Step*> way;
  Step* end = nullptr;
  for (const Configuration* at = &cheapest(from); at; at = way.back()->next) {
    Step* cached = way.empty() || !way.back()->then ? cached_step(at) : way.back()->then;
    if (cached && cached->round == round_) {
      end = cached;
      break;
    }
    if (round_is_over()) {
      for (Step* seen : way) seen->round = 0;
      return std::nullopt;
    }
    --left_;
    way.push_back(cached ? cached : &step(at));
    work_ += way.back()->work;
    way.back()->round = round_;
  }
  const Step& first = way.empty() ? *end : *way.front();
  measure_steps(way, end);
  return first.length;
}

std::optional<uint8_t> Completions::next_byte(const Configuration& from) {
  const Step& first = step(&cheapest(from));
  return first.next ? std::optional(first.byte) : std::nullopt;
}

/// Stores the lengths of the steps on a path to `end`, or to the end of the text if that is null.
void Completions::measure_steps(const std::vector<Step*>& way, Step* end) {
  for (auto before = way.rbegin(); before != way.rend(); end = *before, ++before) {
    Step& at = **before;
    if (at.measured) continue;
    at.then = end;
    at.length = {count_tokens(at), end->length.bytes + 1};
    at.measured = true;
  }
}

/// Fewest tokens from a step on, given those of all later steps.
uint64_t Completions::count_tokens(const Step& from) const {
  const Trie& trie = grammar_.vocabulary().trie();
  uint64_t best = kInfinite;
  uint32_t node = 0;
  for (const Step* at = &from; at->then; at = at->then) {
    node = trie.child(node, at->byte);
    if (!node) break;
    if (trie.token[node] != kNoToken) best = std::min(best, add_lengths(at->then->length.tokens, 1));
  }
  return best;
}

void Completions::check_length(size_t steps) const {
  const uint64_t most = grammar_.limits().max_states;
  if (steps > most) throw ResourceLimit("max_states", most, "while looking for a completion of the text");
}

/// The stacks whose completions have the fewest bytes. As each byte of a completion leaves one less, no others ever
/// take part, unless lengths are not exact.
const Configuration& Completions::cheapest(const Configuration& from) {
  if (from.count == 1 || !exact_) return from;
  const std::vector<uint32_t>& cheapest = costs_.cheapest(&from);
  if (cheapest.size() == from.count) return from;
  tops_.clear();
  for (const uint32_t top : cheapest) tops_.push_back(from.tops()[top]);
  return *store_.make(tops_);
}

Completions::Step* Completions::cached_step(const Configuration* at) {
  const auto it = steps_.find(at);
  return it == steps_.end() ? nullptr : &it->second;
}

/// Whether a step is cached makes no difference to the work so far.
Completions::Step& Completions::step(const Configuration* at) {
  if (Step* cached = cached_step(at)) return *cached;
  const uint64_t before = store_.work();
  Step& made = steps_.emplace(at, first_step(*at)).first->second;
  made.work = store_.work() - before;
  store_.start_work(before);
  return made;
}

Completions::Step Completions::first_step(const Configuration& at) {
  Step found;
  found.measured = at.accepting;
  if (at.accepting) return found;
  Deadline::check();
  // A forced byte is right whatever it costs: indentation is not part of the cost.
  const uint64_t here = cost(at);
  size_t choices = 0;
  const StackTop& first = cheapest_stack(at);
  const ByteSet possible = possible_bytes(grammar_, at), likely = grammar_.likely_bytes(first.state, first.reg),
                known = grammar_.known_bytes(first.state, first.reg);
  for (const ByteSet& bytes : {possible & known, possible & likely & ~known, possible & ~likely & ~known}) {
    for (int byte = bytes.next(0); byte >= 0; byte = bytes.next(byte + 1)) {
      if (exact_ && at.count > 1 && !comes_nearer(first, static_cast<uint8_t>(byte), here)) continue;
      const Configuration* next = advance(at, static_cast<uint8_t>(byte));
      if (!next) continue;
      next = &cheapest(*next);
      found.next = next, found.byte = static_cast<uint8_t>(byte);
      if (cost(*next) < here) return found;
      ++choices;
    }
  }
  if (choices != 1) throw std::logic_error("a live configuration has no completion");
  return found;
}

/// True if a byte leads a stack to a cost below `here`.
bool Completions::comes_nearer(const StackTop& top, uint8_t byte, uint64_t here) {
  step_all({&top, 1}, byte);
  return std::ranges::any_of(tops_, [&](const StackTop& after) { return costs_.of(after) < here; });
}

const Configuration* Completions::advance(const Configuration& from, uint8_t byte) {
  step_all(from.tops(), byte);
  stepper_.forget(tops_);
  return tops_.empty() ? nullptr : store_.make(tops_);
}

/// Sets `tops_` to the successors of some stack tops.
void Completions::step_all(std::span<const StackTop> from, uint8_t byte) {
  tops_.clear();
  // The caller's walk must not depend on guards evaluated here.
  const bool indescribable = registers_.indescribable;
  for (const StackTop& top : from) stepper_.step(top, byte, tops_);
  registers_.indescribable = indescribable;
}

}  // namespace constrain
