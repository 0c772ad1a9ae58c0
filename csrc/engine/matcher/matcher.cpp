#include "engine/matcher/matcher.h"

#include <algorithm>
#include <stdexcept>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/completion/forced_text.h"
#include "engine/masks/mask_builder.h"

namespace constrain {

namespace {

/// Memory limit for masks of a session, after which they are built again.
constexpr size_t kMaxMaskBytes = size_t{32} << 20;

/// Tokens of a text that are replayed at a time: while its budget is far, but may come near before all are, and in
/// masks that replace others, which are full.
constexpr size_t kReplayed = 64;

/// Tokens after which the configuration is kept while several are replayed, for texts that go back later.
constexpr size_t kCheckpoint = 16;

}  // namespace

Matcher::Session::Session(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar(std::move(grammar)),
      registers(arena, true),
      store(*this->grammar, arena, true),
      stepper(*this->grammar, store, registers),
      bounds(*this->grammar) {
  const Deadline deadline(this->grammar->limits().max_seconds);
  first.configuration = store.make(StackTop{this->grammar->start(), 0, nullptr});
}

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : session_(std::make_shared<Session>(std::move(grammar))), last_(&session_->first) {}

bool Matcher::fill(uint32_t* bits, std::optional<uint64_t> budget) const {
  const MaskPtr mask = budget ? this->mask(*budget) : this->mask();
  const Vocabulary& vocabulary = grammar().vocabulary();
  mask->write(bits, vocabulary.mask_words());
  return mask->count < vocabulary.size();
}

MaskPtr Matcher::mask() const {
  const Configuration* at = last_->terminated ? nullptr : last_->configuration;
  {
    const std::lock_guard lock(session_->mutex);
    if (const MaskPtr* cached = session_->masks.find(at)) return *cached;
  }
  const Deadline deadline(grammar().limits().max_seconds);
  MaskPtr mask = at ? make_mask(*at) : end_mask();
  const std::lock_guard lock(session_->mutex);
  session_->masks.put(at, mask);
  return mask;
}

MaskPtr Matcher::make_mask(const Configuration& at) const {
  if (grammar().vocabulary().tokenizes_all()) return MaskBuilder::mask(grammar(), at);
  const std::lock_guard lock(session_->mutex);
  return tokenizable().mask(at);
}

MaskPtr Matcher::mask(uint64_t budget) const {
  if (last_->terminated) return mask();
  MaskPtr mask = this->mask();
  {
    const Deadline deadline(grammar().limits().max_seconds);
    const std::lock_guard lock(session_->mutex);
    const auto spare = budget > 2 ? session_->bounds.to_spare(*last_->configuration, budget - 2) : std::nullopt;
    if (spare && (*spare > last_->index - replayed_ || last_->index - replayed_ < kReplayed)) return mask;
    const Budgeted text = budgeted(spare ? kReplayed : SIZE_MAX);
    if (spare) return mask;
    if (budget == 0 || !text.masks.fits(text.at, budget - 1)) throw BudgetError(budget, text.masks.tokens(text.at) + 1);
    if (budget < 2) return end_mask();
    if (const MaskPtr fitting = text.masks.mask(text.at, budget - 2, *mask)) {
      const Vocabulary& vocabulary = grammar().vocabulary();
      mask = vocabulary.masks().common(fitting, mask, vocabulary.mask_words());
    }
  }
  return mask;
}

MaskPtr Matcher::end_mask() const {
  const Vocabulary& vocabulary = grammar().vocabulary();
  TokenSet tokens;
  tokens.start(vocabulary.mask_words());
  for (const TokenId id : vocabulary.eos()) tokens.add(id);
  return vocabulary.masks().intern(tokens);
}

bool Matcher::accept(TokenId token) {
  if (grammar().vocabulary().is_eos(token) && is_accepting()) {
    const std::lock_guard lock(session_->mutex);
    push(last_->configuration, true, token, {});
    return true;
  }
  const std::string_view bytes = grammar().vocabulary().spelling(token);
  return !bytes.empty() && extend(bytes, token);
}

bool Matcher::accept_bytes(std::string_view bytes) { return extend(bytes, kNoToken); }

bool Matcher::extend(std::string_view bytes, TokenId token) {
  if (last_->terminated) return false;
  const Deadline deadline(grammar().limits().max_seconds);
  const std::lock_guard lock(session_->mutex);
  const Configuration* next = session_->stepper.advance(*last_->configuration, bytes);
  const bool only_tokenizable = token != kNoToken && !grammar().vocabulary().tokenizes_all();
  if (!next || (only_tokenizable && !tokenizable().possible(*next))) return false;
  // A grammar may ask for an end-of-sequence token as a special token; the text is complete after it.
  push(next, grammar().vocabulary().is_eos(token), token, token == kNoToken ? copy(bytes) : bytes);
  return true;
}

std::string_view Matcher::copy(std::string_view bytes) {
  auto* copy = session_->arena.allocate<char>(bytes.size());
  std::ranges::copy(bytes, copy);
  return {copy, bytes.size()};
}

void Matcher::push(const Configuration* configuration, bool terminated, TokenId token, std::string_view bytes) {
  auto* step = session_->arena.allocate<Step>(1);
  last_ = new (step) Step{last_, configuration, last_->index + 1, terminated, token, bytes};
}

bool Matcher::is_finished() const {
  if (last_->terminated) return true;
  if (!last_->configuration->accepting) return false;
  if (!grammar().vocabulary().tokenizes_all()) return mask()->count == grammar().vocabulary().eos().size();
  const std::lock_guard lock(session_->mutex);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (session_->stepper.advance(*last_->configuration, {&text, 1})) return false;
  }
  return true;
}

void Matcher::rollback(size_t count) {
  if (count > last_->index) {
    throw std::out_of_range("cannot roll back " + std::to_string(count) + " tokens: only " +
                            std::to_string(last_->index) + " were accepted");
  }
  for (; count > 0; --count) last_ = last_->previous;
  replayed_ = std::min(replayed_, last_->index);
}

std::string Matcher::forced_bytes() const {
  if (last_->terminated) return {};
  const Deadline deadline(grammar().limits().max_seconds);
  const std::lock_guard lock(session_->mutex);
  return ForcedText(grammar(), session_->store, session_->registers, *last_->configuration).bytes();
}

std::vector<TokenId> Matcher::forced_tokens(size_t limit) const {
  const Vocabulary& vocabulary = grammar().vocabulary();
  if (!vocabulary.encodes()) return single_choice_tokens(limit);
  if (last_->terminated) return {};
  const Deadline deadline(grammar().limits().max_seconds);
  const std::lock_guard lock(session_->mutex);
  ForcedText text(grammar(), session_->store, session_->registers, *last_->configuration);
  std::vector<TokenId> tokens = text.tokens(last_tokens());
  size_t taken = 0;
  for (const TokenId token : tokens) taken += vocabulary.spelling(token).size();
  const bool to_the_end = text.ends() && taken == text.bytes().size();
  const bool ended = !tokens.empty() && vocabulary.is_eos(tokens.back());
  if (to_the_end && !ended && vocabulary.eos().size() == 1) tokens.push_back(vocabulary.eos().front());
  tokens.resize(std::min(tokens.size(), limit));
  return tokens;
}

/// Returns the last tokens that influence tokenization, starting with a whole character. Tokenizers restart after a
/// special token.
std::vector<TokenId> Matcher::last_tokens() const {
  constexpr size_t kTokens = 4;
  const Vocabulary& vocabulary = grammar().vocabulary();
  std::vector<TokenId> tokens;
  const auto has_text = [&](TokenId token) { return !vocabulary.bytes(token).empty(); };
  const Step* step = last_;
  for (; tokens.size() < kTokens && has_text(step->token); step = step->previous) tokens.push_back(step->token);
  std::ranges::reverse(tokens);
  const auto begins_character = [&](TokenId token) { return (vocabulary.bytes(token).front() & 0xC0) != 0x80; };
  tokens.erase(tokens.begin(), std::ranges::find_if(tokens, begins_character));
  return tokens;
}

std::vector<TokenId> Matcher::single_choice_tokens(size_t limit) const {
  Matcher ahead = *this;
  std::vector<TokenId> tokens;
  while (tokens.size() < limit && !ahead.last_->terminated) {
    const MaskPtr mask = ahead.mask();
    if (mask->count != 1) break;
    const TokenId only = mask->first();
    if (!ahead.accept(only)) break;
    tokens.push_back(only);
  }
  return tokens;
}

void Matcher::start(Replayed& text) const {
  text.masks = BudgetedMasks::shared(grammar());
  text.at = {{session_->first.configuration, &text.masks->start()}};
}

/// Replays up to `most` tokens that were not, and returns the last. Called under the lock of the masks.
const Matcher::Step& Matcher::replay(Replayed& text, size_t most) const {
  std::vector<const Step*> ahead;
  const Step* last = last_;
  for (; !text.at.contains(last->configuration); last = last->previous) ahead.push_back(last);
  const Configuration* at = text.at.at(last->configuration);
  std::string bytes;
  for (; !ahead.empty() && most > 0; --most) {
    last = ahead.back();
    ahead.pop_back();
    bytes += last->bytes;
    if (!ahead.empty() && most > 1 && last->index % kCheckpoint != 0) continue;
    at = &text.masks->after(*at, bytes);
    text.at[last->configuration] = at;
    bytes.clear();
  }
  return *last;
}

/// Finds the text in the shared masks, and replays up to `most` of its tokens. Called under the session's lock.
Matcher::Budgeted Matcher::budgeted(size_t most) const {
  Replayed &text = session_->budgeted, &next = session_->next_budgeted;
  if (!text.masks) start(text);
  if (text.masks->full() && !next.masks) start(next);
  if (next.masks) {
    const std::unique_lock lock(next.masks->mutex);
    const bool done = &replay(next, kReplayed) == last_;
    next.masks->measure_bytes();
    if (done) text = std::move(next), next = {};
  }
  std::unique_lock lock(text.masks->mutex);
  const Step& last = replay(text, most);
  replayed_ = last.index;
  return {*text.masks, std::move(lock), *text.at.at(last.configuration)};
}

/// Called under the session's lock.
TokenizableMasks& Matcher::tokenizable() const {
  std::unique_ptr<TokenizableMasks>& masks = session_->tokenizable;
  if (!masks || masks->bytes() > kMaxMaskBytes) masks = std::make_unique<TokenizableMasks>(grammar());
  return *masks;
}

std::string Matcher::completion() const {
  if (last_->terminated) return {};
  const Deadline deadline(grammar().limits().max_seconds);
  const std::lock_guard lock(session_->mutex);
  const Budgeted text = budgeted();
  return text.masks.completion(text.at);
}

uint64_t Matcher::min_tokens() const {
  if (last_->terminated) return 0;
  const Deadline deadline(grammar().limits().max_seconds);
  const std::lock_guard lock(session_->mutex);
  const Budgeted text = budgeted();
  return text.masks.tokens(text.at) + 1;
}

}  // namespace constrain
