#include "engine/completion/budgeted_masks.h"

#include <algorithm>

#include "engine/base/errors.h"
#include "engine/masks/portable.h"

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

std::shared_ptr<BudgetedMasks> BudgetedMasks::shared(const CompiledGrammar& grammar) {
  return grammar.shared_stage<BudgetedMasks>([](const BudgetedMasks& masks) { return masks.full(); },
                                             [&] { return std::make_shared<BudgetedMasks>(grammar); });
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
  const Configuration& at = like(from);
  return bytes_fit(completions_.cost(at), room) || tokens(at) <= room;
}

std::string BudgetedMasks::completion(const Configuration& from) { return completions_.text(from); }

MaskPtr BudgetedMasks::mask(const Configuration& from, uint64_t room) {
  const Configuration& like = this->like(from);
  const Made made = find_or_make(like, room);
  return made.complete || &like == &from ? made.mask : leaving_at_once(from, room, *made.mask);
}

/// The mask of a text that another stands for, given that of the other: they may differ by tokens that leave free text
/// with their first byte and go on with further members.
MaskPtr BudgetedMasks::leaving_at_once(const Configuration& from, uint64_t room, const Mask& others) {
  ByteSet leaving;
  for (const Head& head : from.heads()) {
    const CharacterClass within = grammar_.wildcard_region(head.state, head.reg).characters;
    const bool any_beyond = within.beyond_ascii && within.excluded.empty();
    leaving.add(~within.ascii & (any_beyond ? ByteSet::range(0, 0x7F) : ByteSet::all()));
  }
  start(from, room);
  if (others.many) tokens_.add(others.many);
  tokens_.add(others.tokens);
  walk_.run(grammar_.vocabulary().trie(), 0, from.heads(), leaving);
  return listed(from);
}

BudgetedMasks::Made BudgetedMasks::find_or_make(const Configuration& from, uint64_t room) {
  if (const auto known = reach_.find(&from); known != reach_.end() && known->second <= room) return {.complete = true};
  const Made* known = made_.find(&from);
  if (known && known->from <= room && room < known->below) return *known;
  Made made = make(from, room);
  if (!guessed_) made_.keep(&from, made);
  return made;
}

BudgetedMasks::Made BudgetedMasks::make(const Configuration& from, uint64_t room) {
  start(from, room);
  if (all_fit(from)) {
    reach_[&from] = most_;
    return {.from = most_, .below = kInfinite, .mask = nullptr, .complete = true};
  }
  forget();
  if (!walk_out_of_free_text(from)) walk_.run(grammar_.vocabulary().trie(), 0, from.heads());
  const bool complete = !walk_.registers().indescribable;
  // Tokens that only seemed not to be possible were not measured.
  if (!complete) most_ = kInfinite;
  if (!guessed_) reach_[&from] = most_;
  return {same_from_, same_below_, most_ <= room ? nullptr : listed(from), complete};
}

void BudgetedMasks::start(const Configuration& from, uint64_t room) {
  from_ = &from, room_ = room, measuring_ = guessed_ = false;
  last_.reset();
  tokens_.start(grammar_.vocabulary().mask_words());
  walk_.registers().indescribable = false;
  walk_.store().start_work();
  forget();
}

/// Forgets the tokens of a walk.
void BudgetedMasks::forget() {
  walk_.tokens.clear();
  most_ = same_from_ = 0;
  same_below_ = kInfinite;
}

/// The tokens that a walk has found.
MaskPtr BudgetedMasks::listed(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
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
  // Near the end of text of limited length each place has a growth of its own; what leaves the text is less to look at.
  const uint64_t room = grammar_.wildcard_region(head.state, head.reg).room;
  if (room > 0 && room < grammar_.vocabulary().longest_token()) return false;
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
/// go on, and text that cannot be need not end anyhow: of these many tokens only those may come that go where shortest
/// ends are likely to go.
bool BudgetedMasks::walk_out_of_free_text(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  if (!vocabulary.spells_all()) return false;
  const bool alone = from.count == 1;
  WildcardRegion text;
  uint64_t most = kInfinite;
  ByteSet likely;
  for (const Head& head : from.heads()) {
    likely.add(grammar_.likely_bytes(head.state, head.reg));
    const WildcardRegion found = grammar_.wildcard_region(head.state, head.reg);
    if (!(alone && found.exact) && found.room < TokenClass::kSteps.front()) continue;
    const uint64_t needed = within_free_text(from, head);
    if (needed < most || text.room == 0) most = needed, text = found;
  }
  if (text.room == 0) return false;
  const TokenClassPtr within = vocabulary.token_class(text.characters);
  if (most <= room_) {
    same_from(most);
    within->add(text.room, tokens_);
  } else {
    same_below(most);
    const auto next = completions_.next_byte(from);
    const bool goes_on = next && text.characters.ascii.has(*next);
    if (within->count() < kMany || (goes_on && likely == ByteSet::all())) return false;
    const uint64_t far = 2 * tokens(from) + kNear;
    if (room_ >= far) {
      // With less room it would be otherwise, even if all fits.
      same_from(far);
      most_ = far;
      return false;
    }
    same_below(far);
    if (likely != ByteSet::all()) {
      ByteSet inside = ByteSet::range(0x80, 0xFF);
      inside.add(text.characters.ascii);
      walk_.run_likely(vocabulary.trie(), from.heads(), inside);
    }
    if (goes_on) {
      walk_along_completion(from);
      most_ = kInfinite;
      return true;
    }
  }
  most_ = std::max(most_, most);
  // Tokens that no text of this head begins with may still come for others.
  walk_.run(*within->leaving(alone ? text.leaving : ByteSet::all(), vocabulary), 0, from.heads());
  const bool bounded = text.room != WildcardRegion::kUnbounded;
  const bool longer = bounded && (!alone || !text.exact || text.room > kWildcardHorizon);
  if (longer) walk_.run(*within->far(text.room, vocabulary), 0, from.heads());
  return true;
}

/// Looks at the tokens that the completion may begin with, one of which must come where there is no room for more.
void BudgetedMasks::walk_along_completion(const Configuration& from) {
  const Trie& trie = grammar_.vocabulary().trie();
  const Configuration* at = &from;
  uint32_t node = 0;
  for (auto next = completions_.next_byte(*at); next; next = completions_.next_byte(*at)) {
    node = trie.child(node, *next);
    if (!node) return;
    at = &completions_.after_next_byte(*at);
    if (trie.token[node] != kNoToken && admits(at->heads())) walk_.tokens.push_back(trie.token[node]);
  }
}

/// Tokens that suffice after one that stays within the free text of a head; kInfinite where nothing is known of them.
uint64_t BudgetedMasks::within_free_text(const Configuration& from, const Head& head) {
  const uint64_t growth = grammar_.max_growth(head.state, head.reg);
  if (!one_for_each_byte_) return add_lengths(completions_.measure(from).bytes, growth);
  const uint64_t top = std::min(add_lengths(grammar_.remaining(head.state, head.reg), growth), bounds_.on_top(head));
  // Of several heads the completion takes the one with the fewest bytes, which need not be the fewest tokens.
  if (from.count > 1) return head.below ? add_lengths(top, completions_.cost(*head.below)) : top;
  const uint64_t needed = head.below ? add_lengths(top, completions_.measure(*head.below).tokens) : top;
  if (needed <= room_) same_from(needed);
  if (needed <= room_ || growth == kInfinite) return needed;
  same_below(needed);
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

/// The text with others in place of keys for which any other might stand, so that what is found out about one serves
/// all; the text itself where that makes a difference. Tokens that hold several members may tell them apart.
const Configuration& BudgetedMasks::like(const Configuration& from) {
  std::vector<Head> any;
  std::vector<std::string> exceptions;
  for (const Head& head : from.heads()) {
    const auto after = any_text(head, exceptions);
    if (!after || !exceptions.empty()) return from;
    any.push_back(*after);
  }
  return *walk_.store().make(any);
}

/// What a head is after any text of a class but some exceptions; none where that makes a difference.
std::optional<Head> BudgetedMasks::any_text(const Head& head, std::vector<std::string>& exceptions) {
  Registers& registers = walk_.registers();
  registers.depth = head.depth_below();
  Head after = head;
  if (!grammar_.skip_wildcard(head.state, after.reg, registers, exceptions)) return std::nullopt;
  return after;
}

bool BudgetedMasks::admits(std::span<const Head> heads) {
  const Need need = need_after(heads);
  most_ = std::max(most_, need.most);
  const bool fits = need.most <= room_;
  if (fits) {
    same_from(need.most);
  } else {
    same_below(need.least);
  }
  return fits;
}

BudgetedMasks::Need BudgetedMasks::need_after(std::span<const Head> heads) {
  if (heads.size() == 1 && heads.front() == last_) return last_need_;
  std::vector<Head> all(heads.begin(), heads.end());
  const Need need = measure(*walk_.store().make(all));
  walk_.store().start_work();  // the limit is one of each token here: the time that all take has its own
  if (heads.size() == 1) last_ = heads.front(), last_need_ = need;
  return need;
}

/// As many as there are bytes suffice; that is enough where these fit or no more is to be measured. At least as many
/// are needed as there would be of the longest token; that is enough where these do not fit.
BudgetedMasks::Need BudgetedMasks::measure(const Configuration& at) {
  const uint64_t bytes = completions_.cost(at);
  if (bytes_fit(bytes, room_)) return {0, bytes};
  const uint64_t least = bytes / std::max<uint64_t>(1, grammar_.vocabulary().longest_token());
  if (least > room_) return {least, kInfinite};
  if (!measuring_) {
    // The first token of the current completion is always among those that are measured.
    completions_.start_round(completions_.measure(*from_).bytes + 1 + kSteps);
    completions_.measure_within(*from_);
    measuring_ = true;
  }
  if (const auto length = completions_.measure_within(at)) return {length->tokens, length->tokens};
  guessed_ = true;
  return {least, one_for_each_byte_ ? bytes : kInfinite};
}

}  // namespace constrain
