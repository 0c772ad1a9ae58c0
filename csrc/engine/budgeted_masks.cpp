#include "engine/budgeted_masks.h"

#include <algorithm>

#include "engine/errors.h"

namespace constrain {

size_t BudgetedMasks::HeadHash::operator()(const Head& head) const {
  uint64_t hash = 0;
  for (const uint64_t word : {uint64_t{head.state}, head.reg, reinterpret_cast<uint64_t>(head.below)}) {
    hash = (hash ^ word) * 0x9FB21C651E98DF25ull, hash ^= hash >> 32;
  }
  return hash;
}

BudgetedMasks::BudgetedMasks(const CompiledGrammar& grammar)
    : grammar_(grammar), walk_(grammar, scratch_, true), completions_(grammar, walk_.store(), walk_.registers()) {
  walk_.registers().only_endings = true;
  walk_.admits = [this](std::span<const Head> heads) { return fits(heads); };
}

size_t BudgetedMasks::bytes() const {
  constexpr size_t kEntry = 120;
  return scratch_.arena.bytes() + kEntry * (completions_.size() + after_.size() + reach_.size());
}

uint64_t BudgetedMasks::tokens(const Configuration& from) {
  const uint64_t tokens = completions_.measure(from).tokens;
  if (tokens == kInfinite) {
    throw VocabularyError("no tokens spell a shortest completion of the text: the vocabulary lacks bytes");
  }
  return tokens;
}

std::string BudgetedMasks::completion(const Configuration& from) { return completions_.text(from); }

MaskPtr BudgetedMasks::mask(const Configuration& from, uint64_t room) {
  if (const auto known = reach_.find(&from); known != reach_.end() && known->second <= room) return nullptr;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  room_ = room, most_ = 0;
  tokens_.start(vocabulary.mask_words());
  walk_.tokens.clear();
  walk_.registers().indescribable = false;
  walk_.store().start_work();
  if (!walk_out_of_free_text(from)) walk_.run(vocabulary.trie(), 0, from.heads());
  // Tokens that only seemed not to be possible were not measured.
  if (walk_.registers().indescribable) most_ = kInfinite;
  reach_[&from] = most_;
  if (most_ <= room) return nullptr;
  for (TokenId token : walk_.tokens) {
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) tokens_.add(token);
  }
  if (from.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens_.add(id);
  }
  return vocabulary.masks().intern(tokens_);
}

/// Where it is clear that whatever stays within free text fits, walks only the tokens that leave it.
bool BudgetedMasks::walk_out_of_free_text(const Configuration& from) {
  if (from.count != 1 || !grammar_.vocabulary().spells_all()) return false;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  const Head& head = from.heads().front();
  const uint64_t most = add_lengths(completions_.measure(from).bytes, grammar_.growth(head.state, head.reg));
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

bool BudgetedMasks::fits(std::span<const Head> heads) {
  const uint64_t tokens = tokens_after(heads);
  most_ = std::max(most_, tokens);
  return tokens <= room_;
}

uint64_t BudgetedMasks::tokens_after(std::span<const Head> heads) {
  bool exact = true;
  if (heads.size() != 1) return measure(heads, exact);
  const Head& head = heads.front();
  if (head == last_) return last_tokens_;
  const auto known = after_.find(head);
  const uint64_t tokens = known == after_.end() ? measure(heads, exact) : known->second;
  if (!exact) return tokens;
  after_.emplace(head, tokens);
  last_ = head, last_tokens_ = tokens;
  return tokens;
}

/// Tokens of the completion; or, not exactly, some number that is too large where the bytes alone tell that it is.
uint64_t BudgetedMasks::measure(std::span<const Head> heads, bool& exact) {
  const uint64_t work = walk_.store().work();
  std::vector<Head> all(heads.begin(), heads.end());
  const Configuration* at = walk_.store().make(all);
  exact = completions_.cost(*at) / std::max<uint64_t>(1, grammar_.vocabulary().longest_token()) <= room_;
  const uint64_t tokens = exact ? completions_.measure(*at).tokens : kInfinite;
  walk_.store().start_work(work);
  return tokens;
}

}  // namespace constrain
