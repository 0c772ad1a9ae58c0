#include "engine/budgeted_masks.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/portable.h"

namespace constrain {

namespace {

/// Steps of completions that are looked at for one mask.
constexpr uint64_t kSteps = 4096;

/// Where there is room for fewer tokens than these beside twice the completion, text need not go on that can be ended,
/// if so many tokens would have to be looked at.
constexpr uint64_t kNear = 32;
constexpr size_t kMany = 4096;

}  // namespace

BudgetedMasks::BudgetedMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      walk_(grammar, scratch_, true),
      completions_(grammar, walk_.store(), walk_.registers()),
      stepper_(grammar, walk_.store(), walk_.registers()),
      bounds_(grammar),
      start_(walk_.store().make(Head{grammar.start(), 0, nullptr})),
      one_for_each_byte_(grammar.bytes_bound_tokens()) {
  walk_.registers().only_endings = true;
  walk_.admits = [this](std::span<const Head> heads) { return admits(heads); };
}

void BudgetedMasks::measure_bytes() {
  constexpr size_t kEntry = 120;
  bytes_ = scratch_.arena.bytes() + kEntry * (completions_.size() + bounds_.size() + reach_.size());
}

const Configuration& BudgetedMasks::after(const Configuration& from, std::string_view bytes) {
  // Texts that are followed go on with more than their ends.
  walk_.registers().only_endings = false;
  const Configuration* at = &from;
  for (const char byte : bytes) {
    walk_.store().start_work();
    heads_.clear();
    for (const Head& head : at->heads()) stepper_.step(head, static_cast<uint8_t>(byte), heads_);
    at = walk_.store().make(heads_);
  }
  walk_.registers().only_endings = true;
  return *at;
}

uint64_t BudgetedMasks::tokens(const Configuration& from) {
  const uint64_t tokens = completions_.measure(from).tokens;
  if (tokens == kInfinite) {
    throw VocabularyError("no tokens spell a shortest completion of the text: the vocabulary lacks bytes");
  }
  return tokens;
}

bool BudgetedMasks::fits(const Configuration& from, uint64_t room) {
  return bytes_fit(completions_.cost(from), room) || tokens(from) <= room;
}

std::string BudgetedMasks::completion(const Configuration& from) { return completions_.text(from); }

MaskPtr BudgetedMasks::mask(const Configuration& from, uint64_t room) {
  if (const auto known = reach_.find(&from); known != reach_.end() && known->second <= room) return nullptr;
  if (fits_after_any_text(from, room)) return nullptr;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  from_ = &from, room_ = room, most_ = 0, measuring_ = guessed_ = false;
  last_.reset();
  tokens_.start(vocabulary.mask_words());
  walk_.tokens.clear();
  walk_.registers().indescribable = false;
  walk_.store().start_work();
  if (all_fit(from)) {
    reach_[&from] = most_;
    return nullptr;
  }
  walk_.tokens.clear();
  most_ = 0;
  if (!walk_out_of_free_text(from)) walk_.run(vocabulary.trie(), 0, from.heads());
  // Tokens that only seemed not to be possible were not measured.
  if (walk_.registers().indescribable) most_ = kInfinite;
  if (!guessed_) reach_[&from] = most_;
  if (most_ <= room) return nullptr;
  for (TokenId token : walk_.tokens) {
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) tokens_.add(token);
  }
  if (from.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens_.add(id);
  }
  return vocabulary.masks().intern(tokens_);
}

/// Where it is known how much one token may add to what the top frame still needs, looks only at tokens that leave it.
/// False also where some of them are not measured, or do not fit.
bool BudgetedMasks::all_fit(const Configuration& from) {
  if (from.count != 1 || !one_for_each_byte_) return false;
  const Head& head = from.heads().front();
  const InnerPtr known = portable_growth(grammar_, head);
  if (!known) return false;
  most_ = within_top(head, known->growth);
  if (most_ > room_) return false;
  for (const Inner::Exit& exit : known->exits) {
    if (head.below) walk_.run(*exit.trie, exit.node, head.below->heads());
  }
  return most_ <= room_ && !guessed_ && !walk_.registers().indescribable;
}

/// Tokens that suffice after one that stays within the top frame, which needs so many bytes more than it does now: one
/// for each byte of it, and those of the completion of what waits below.
uint64_t BudgetedMasks::within_top(const Head& head, uint64_t growth) {
  const uint64_t top = add_lengths(grammar_.remaining(head.state, head.reg), growth);
  return head.below ? add_lengths(top, completions_.measure(*head.below).tokens) : top;
}

/// Looks only at tokens that leave the free text of one of the heads, where it is known what one may need after any
/// other. These may come if that fits. If it does not, and most of what fits is needed, text that can be ended need not
/// go on: of these many tokens only those may come that shortest ends are likely to begin with.
bool BudgetedMasks::walk_out_of_free_text(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  if (!vocabulary.spells_all()) return false;
  const bool alone = from.count == 1;
  FreeText text;
  uint64_t most = kInfinite;
  ByteSet likely;
  for (const Head& head : from.heads()) {
    likely.add(grammar_.likely(head.state, head.reg));
    const FreeText found = grammar_.free_text(head.state, head.reg);
    if (!(alone && found.exact) && found.room < TokenClass::kSteps.front()) continue;
    const uint64_t needed = within_free_text(from, head);
    if (needed < most || text.room == 0) most = needed, text = found;
  }
  if (text.room == 0) return false;
  const TokenClassPtr within = vocabulary.token_class(text.characters);
  if (most <= room_) {
    within->add(text.room, tokens_);
  } else {
    const bool near = 2 * tokens(from) + kNear > room_;
    const auto next = completions_.next_byte(from);
    const bool goes_on = next && text.characters.ascii.has(*next);
    if (!near || within->count() < kMany || (goes_on && likely == ByteSet::all())) return false;
    if (goes_on) likely.add(*next);
    if (likely != ByteSet::all()) walk_.run(vocabulary.trie(), 0, from.heads(), likely & text.characters.ascii);
  }
  most_ = most;
  // Tokens that no text of this head begins with may still come for others.
  walk_.run(*within->leaving(alone ? text.leaving : ByteSet::all(), vocabulary), 0, from.heads());
  const bool far = !alone || !text.exact || text.room > FreeTextFinder::kHorizon;
  if (far) walk_.run(*within->far(text.room, vocabulary), 0, from.heads());
  return true;
}

/// Tokens that suffice after one that stays within the free text of a head; kInfinite where nothing is known of them.
uint64_t BudgetedMasks::within_free_text(const Configuration& from, const Head& head) {
  const uint64_t growth = grammar_.growth(head.state, head.reg);
  if (!one_for_each_byte_) return add_lengths(completions_.measure(from).bytes, growth);
  const uint64_t top = std::min(add_lengths(grammar_.remaining(head.state, head.reg), growth), bounds_.on_top(head));
  // Of several heads the completion takes the one with the fewest bytes, which need not be the fewest tokens.
  if (from.count > 1) return head.below ? add_lengths(top, completions_.cost(*head.below)) : top;
  const uint64_t needed = head.below ? add_lengths(top, completions_.measure(*head.below).tokens) : top;
  if (needed <= room_ || growth == kInfinite) return needed;
  return std::min(needed, after_any_text(head, growth));
}

/// The same where texts of the class all leave the frame alike: after some bytes that a character still wants, or that
/// tell a text from others, comes the completion of what it is then.
uint64_t BudgetedMasks::after_any_text(const Head& head, uint64_t growth) {
  std::vector<std::string> exceptions;
  const auto after = any_text(head, exceptions);
  if (!after) return kInfinite;
  const uint64_t more = add_lengths(grammar_.remaining(head.state, head.reg), growth),
                 then = grammar_.remaining(after->state, after->reg);
  const Configuration& left = *walk_.store().make(*after);
  return add_lengths(completions_.measure(left).tokens, more - std::min(more, then));
}

/// Told by the text that stands for any other, which has been looked at before: a key that has no name, say, whatever
/// it is.
bool BudgetedMasks::fits_after_any_text(const Configuration& from, uint64_t room) {
  std::vector<Head> any;
  std::vector<std::string> exceptions;
  for (const Head& head : from.heads()) {
    const auto after = any_text(head, exceptions);
    if (!after || !exceptions.empty()) return false;
    any.push_back(*after);
  }
  const Configuration& like = *walk_.store().make(any);
  if (const auto known = reach_.find(&like); known != reach_.end()) return known->second <= room;
  return &like != &from && !mask(like, room);
}

/// What a head is after any text of a class but some exceptions; none where that makes a difference.
std::optional<Head> BudgetedMasks::any_text(const Head& head, std::vector<std::string>& exceptions) {
  Registers& registers = walk_.registers();
  registers.depth = head.depth_below();
  Head after = head;
  if (!grammar_.pass_text(head.state, after.reg, registers, exceptions)) return std::nullopt;
  return after;
}

bool BudgetedMasks::admits(std::span<const Head> heads) {
  const uint64_t tokens = tokens_after(heads);
  most_ = std::max(most_, tokens);
  return tokens <= room_;
}

uint64_t BudgetedMasks::tokens_after(std::span<const Head> heads) {
  if (heads.size() == 1 && heads.front() == last_) return last_tokens_;
  std::vector<Head> all(heads.begin(), heads.end());
  const uint64_t tokens = measure(*walk_.store().make(all));
  walk_.store().start_work();  // the limit is one of each token here: the time that all take has its own
  if (heads.size() == 1) last_ = heads.front(), last_tokens_ = tokens;
  return tokens;
}

/// Tokens of the completion; or as many as there are bytes, where these fit or no more is to be measured; or some
/// number that is too large where the bytes alone tell that it is.
uint64_t BudgetedMasks::measure(const Configuration& at) {
  const uint64_t bytes = completions_.cost(at);
  if (bytes_fit(bytes, room_)) return bytes;
  if (bytes / std::max<uint64_t>(1, grammar_.vocabulary().longest_token()) > room_) return kInfinite;
  if (!measuring_) {
    // The first token of the current completion is always among those that are measured.
    completions_.start_round(completions_.measure(*from_).bytes + 1 + kSteps);
    completions_.measure_within(*from_);
    measuring_ = true;
  }
  if (const auto length = completions_.measure_within(at)) return length->tokens;
  guessed_ = true;
  return one_for_each_byte_ ? bytes : kInfinite;
}

}  // namespace constrain
