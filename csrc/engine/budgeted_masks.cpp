#include "engine/budgeted_masks.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/portable.h"

namespace constrain {

namespace {

/// Steps of completions that are looked at for one mask.
constexpr uint64_t kSteps = 4096;

}  // namespace

BudgetedMasks::BudgetedMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      walk_(grammar, scratch_, true),
      completions_(grammar, walk_.store(), walk_.registers()),
      bounds_(grammar),
      one_for_each_byte_(grammar.vocabulary().spells_all() && !grammar.uses_depth() && grammar.measures_exactly()) {
  walk_.registers().only_endings = true;
  walk_.admits = [this](std::span<const Head> heads) { return admits(heads); };
}

size_t BudgetedMasks::bytes() const {
  constexpr size_t kEntry = 120;
  return scratch_.arena.bytes() + kEntry * (completions_.size() + bounds_.size() + reach_.size());
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

/// Where it is clear that whatever stays within free text fits, walks only the tokens that leave it.
bool BudgetedMasks::walk_out_of_free_text(const Configuration& from) {
  if (from.count != 1 || !grammar_.vocabulary().spells_all()) return false;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  const Head& head = from.heads().front();
  const uint64_t growth = grammar_.growth(head.state, head.reg);
  if (growth == kInfinite) return false;
  const uint64_t most =
      one_for_each_byte_ ? within_top(head, growth) : add_lengths(completions_.measure(from).bytes, growth);
  if (most > room_) return false;
  const FreeText text = grammar_.free_text(head.state, head.reg);
  if (!text.exact && text.room < TokenClass::kSteps.front()) return false;
  const TokenClassPtr within = vocabulary.token_class(text.characters);
  within->add(text.room, tokens_);
  most_ = most;
  walk_.run(*within->leaving(text.leaving, vocabulary), 0, from.heads());
  const bool far = !text.exact || text.room > FreeTextFinder::kHorizon;
  if (far) walk_.run(*within->far(text.room, vocabulary), 0, from.heads());
  return true;
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
