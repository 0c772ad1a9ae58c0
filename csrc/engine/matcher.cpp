#include "engine/matcher.h"

#include <stdexcept>

#include "engine/errors.h"
#include "engine/mask_builder.h"

namespace constrain {

namespace {

/// What masks of one kind remember of the texts of a session may take so many bytes before they start anew.
constexpr size_t kMaxMaskBytes = size_t{32} << 20;

}  // namespace

Matcher::Session::Session(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar(std::move(grammar)), registers(arena, true), store(*this->grammar, arena, true) {
  first.configuration = store.make(Head{this->grammar->start(), 0, nullptr});
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
    if (MaskPtr known = session_->masks.find(at)) return known;
  }
  MaskPtr mask = at ? make_mask(*at) : end_mask();
  const std::lock_guard lock(session_->mutex);
  session_->masks.keep(at, mask);
  return mask;
}

MaskPtr Matcher::make_mask(const Configuration& at) const {
  if (grammar().vocabulary().spells_all()) return MaskBuilder(grammar(), at).build();
  const std::lock_guard lock(session_->mutex);
  return spelled().mask(at);
}

MaskPtr Matcher::mask(uint64_t budget) const {
  const uint64_t needed = min_tokens();
  if (budget < needed) throw BudgetError(budget, needed);
  if (last_->terminated) return mask();
  if (budget < 2) return end_mask();
  MaskPtr mask;
  {
    const std::lock_guard lock(session_->mutex);
    mask = budgeted().mask(*last_->configuration, budget - 2);
  }
  return mask ? mask : this->mask();
}

MaskPtr Matcher::end_mask() const {
  const Vocabulary& vocabulary = grammar().vocabulary();
  TokenSet tokens;
  tokens.start(vocabulary.mask_words());
  for (const TokenId id : vocabulary.eos()) tokens.add(id);
  return vocabulary.masks().intern(tokens);
}

bool Matcher::accept(TokenId token) {
  if (grammar().vocabulary().is_eos(token)) {
    if (!is_accepting()) return false;
    push(last_->configuration, true);
    return true;
  }
  const std::string_view bytes = grammar().vocabulary().bytes(token);
  return !bytes.empty() && take(bytes, !grammar().vocabulary().spells_all());
}

bool Matcher::accept_bytes(std::string_view bytes) { return take(bytes, false); }

bool Matcher::take(std::string_view bytes, bool only_spelled) {
  if (last_->terminated) return false;
  const std::lock_guard lock(session_->mutex);
  const Configuration* next = advance(last_->configuration, bytes);
  if (!next || (only_spelled && !spelled().possible(*next))) return false;
  push(next, false);
  return true;
}

const Configuration* Matcher::advance(const Configuration* from, std::string_view bytes) const {
  Stepper stepper(grammar(), session_->store, session_->registers);
  std::vector<Head> heads(from->heads().begin(), from->heads().end()), next;
  for (const char byte : bytes) {
    session_->store.start_work();
    next.clear();
    for (const Head& head : heads) stepper.step(head, static_cast<uint8_t>(byte), next);
    if (next.empty()) return nullptr;
    // Readings that came to agree are merged at once, so that ambiguity cannot multiply from byte to byte.
    if (next.size() > 1) {
      const auto merged = session_->store.make(next)->heads();
      heads.assign(merged.begin(), merged.end());
    } else {
      heads.swap(next);
    }
  }
  return session_->store.make(heads);
}

void Matcher::push(const Configuration* configuration, bool terminated) {
  auto* step = session_->arena.allocate<Step>(1);
  last_ = new (step) Step{last_, configuration, last_->index + 1, terminated};
}

bool Matcher::is_finished() const {
  if (last_->terminated) return true;
  if (!last_->configuration->accepting) return false;
  if (!grammar().vocabulary().spells_all()) return mask()->count == grammar().vocabulary().eos().size();
  const std::lock_guard lock(session_->mutex);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (advance(last_->configuration, {&text, 1})) return false;
  }
  return true;
}

void Matcher::rollback(size_t count) {
  if (count > last_->index) {
    throw std::out_of_range("cannot roll back " + std::to_string(count) + " tokens: only " +
                            std::to_string(last_->index) + " were accepted");
  }
  for (; count > 0; --count) last_ = last_->previous;
}

std::vector<TokenId> Matcher::forced_tokens(size_t limit) const {
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

/// Called under the session's lock.
BudgetedMasks& Matcher::budgeted() const {
  std::unique_ptr<BudgetedMasks>& masks = session_->budgeted;
  if (!masks || masks->bytes() > kMaxMaskBytes) masks = std::make_unique<BudgetedMasks>(grammar());
  return *masks;
}

/// Called under the session's lock.
SpelledMasks& Matcher::spelled() const {
  std::unique_ptr<SpelledMasks>& masks = session_->spelled;
  if (!masks || masks->bytes() > kMaxMaskBytes) masks = std::make_unique<SpelledMasks>(grammar());
  return *masks;
}

std::string Matcher::completion() const {
  if (last_->terminated) return {};
  const std::lock_guard lock(session_->mutex);
  return budgeted().completion(*last_->configuration);
}

uint64_t Matcher::min_tokens() const {
  if (last_->terminated) return 0;
  const std::lock_guard lock(session_->mutex);
  return budgeted().tokens(*last_->configuration) + 1;
}

}  // namespace constrain
