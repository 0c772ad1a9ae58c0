#include "engine/completion/budgeted_masks.h"

#include <algorithm>
#include <utility>

#include "engine/base/errors.h"
#include "engine/masks/frame_growth.h"
#include "engine/text/utf8.h"

namespace constrain {

namespace {

/// Steps of completions that may be measured for one mask.
constexpr uint64_t kSteps = 4096;

/// If the budget exceeds twice the completion by less than kNear, and more than kMany tokens would have to be measured,
/// tokens that stay in a wildcard region are refused: the text has to head for its end.
constexpr uint64_t kNear = 32;
constexpr size_t kMany = 4096;

/// Most tokens that may go on unlike the usual text, each of which is measured.
constexpr size_t kFew = 16;

/// Masks within a budget may take this many times the work of others: they make the configurations after all tokens.
constexpr uint64_t kMoreWork = 4;

/// Returns the tokens of whole characters and the beginning of one.
TriePtr unfinished_tokens(const Vocabulary& vocabulary) {
  constexpr uint64_t kKey[] = {~uint64_t{1}};  // descriptions of frames have several words
  if (const auto cached = vocabulary.shared_results().find(kKey)) return std::static_pointer_cast<const Trie>(*cached);
  const Trie& trie = vocabulary.trie();
  std::vector<Utf8State> after(size_t{vocabulary.longest_token()} + 1, Utf8State::boundary);
  std::vector<uint32_t> nodes;
  for (uint32_t node = 1; node < trie.nodes();) {
    Utf8State& state = after[trie.depth[node]];
    state = next_utf8(after[trie.depth[node] - 1], trie.byte[node]);
    const bool inside = state != Utf8State::boundary && state != Utf8State::malformed;
    if (inside && trie.token[node] != kNoToken) nodes.push_back(node);
    node += state == Utf8State::malformed ? trie.size[node] : 1;
  }
  const auto made = std::make_shared<const Trie>(trie.select(nodes));
  vocabulary.shared_results().put(kKey, made, made->bytes());
  return made;
}

/// Sets a variable until the end of a scope.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~Restore() { variable_ = std::move(before_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T before_;
};

}  // namespace

BudgetedMasks::BudgetedMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      walk_(grammar, scratch_, true),
      completions_(grammar, walk_.store(), walk_.registers()),
      stepper_(grammar, walk_.store(), walk_.registers()),
      bounds_(grammar),
      start_(walk_.store().make(StackTop{grammar.start(), 0, nullptr})),
      one_for_each_byte_(grammar.bytes_bound_tokens()) {
  walk_.registers().only_endings = true;
  walk_.store().set_max_work(kMoreWork * grammar.limits().max_work);
  walk_.admits = [this](std::span<const StackTop> tops) { return admits(tops); };
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
  // Texts that are followed continue with more than their completions.
  const Restore exact(walk_.registers().only_endings, false);
  const Configuration* at = &from;
  for (const char byte : bytes) {
    walk_.store().start_work();
    tops_.clear();
    for (const StackTop& top : at->tops()) stepper_.step(top, static_cast<uint8_t>(byte), tops_);
    at = walk_.store().make(tops_);
  }
  return *at;
}

uint64_t BudgetedMasks::tokens(const Configuration& from) {
  walk_.store().start_work();
  return measured_tokens(from);
}

uint64_t BudgetedMasks::measured_tokens(const Configuration& from) {
  const uint64_t tokens = completions_.measure(from).tokens;
  if (tokens == kInfinite) {
    throw VocabularyError("a shortest completion of the text is not tokenizable: the vocabulary lacks bytes");
  }
  return tokens;
}

bool BudgetedMasks::fits(const Configuration& from, uint64_t budget) {
  walk_.store().start_work();
  const Configuration& at = representative(from);
  return bytes_fit(completions_.cost(at), budget) || measured_tokens(at) <= budget;
}

std::string BudgetedMasks::completion(const Configuration& from) {
  walk_.store().start_work();
  return completions_.text(from);
}

MaskPtr BudgetedMasks::mask(const Configuration& from, uint64_t budget) {
  walk_.store().start_work();
  const Configuration& representative = this->representative(from);
  const Made made = find_or_make(representative, budget);
  const bool same = made.complete || &representative == &from;
  const MaskPtr mask = same ? made.mask : leaving_at_once(from, budget, *made.mask);
  grammar_.counters().visited += std::exchange(walk_.visited, 0);
  return mask;
}

/// Derives the mask of a configuration from that of its representative. Both may differ in tokens that leave a wildcard
/// region by their first byte and continue with further members.
MaskPtr BudgetedMasks::leaving_at_once(const Configuration& from, uint64_t budget, const Mask& others) {
  ByteSet leaving;
  for (const StackTop& top : from.tops()) {
    const CharacterClass within = grammar_.wildcard_region(top.state, top.reg).characters;
    const bool any_beyond = within.beyond_ascii && within.excluded.empty();
    leaving.add(~within.ascii & (any_beyond ? ByteSet::range(0, 0x7F) : ByteSet::all()));
  }
  start(from, budget);
  if (others.many) tokens_.add(others.many);
  tokens_.add(others.tokens);
  walk_.run(grammar_.vocabulary().trie(), 0, from.tops(), leaving);
  return listed(from);
}

BudgetedMasks::Made BudgetedMasks::find_or_make(const Configuration& from, uint64_t budget) {
  if (const auto cached = reach_.find(&from); cached != reach_.end() && cached->second <= budget)
    return {.complete = true};
  const Made* cached = made_.find(&from);
  if (cached && cached->from <= budget && budget < cached->below) return *cached;
  Made made = make(from, budget);
  if (!guessed_) made_.put(&from, made);
  return made;
}

BudgetedMasks::Made BudgetedMasks::make(const Configuration& from, uint64_t budget) {
  start(from, budget);
  if (all_fit(from)) {
    reach_[&from] = most_;
    return {.from = most_, .below = kInfinite, .mask = nullptr, .complete = true};
  }
  forget();
  if (!walk_out_of_wildcard(from)) walk_.run(grammar_.vocabulary().trie(), 0, from.tops());
  const bool complete = !walk_.registers().indescribable;
  // Some possible tokens were refused for the representative, and not measured.
  if (!complete) most_ = kInfinite;
  if (!guessed_) reach_[&from] = most_;
  return {same_from_, same_below_, most_ <= budget ? nullptr : listed(from), complete};
}

void BudgetedMasks::start(const Configuration& from, uint64_t budget) {
  from_ = &from, budget_ = budget, measuring_ = guessed_ = false;
  last_.reset();
  unlike_.clear();
  tokens_.start(grammar_.vocabulary().mask_words());
  walk_.registers().indescribable = false;
  forget();
}

/// Clears the results of the last walk.
void BudgetedMasks::forget() {
  walk_.tokens.clear();
  most_ = same_from_ = 0;
  same_below_ = kInfinite;
}

/// Makes a mask of the tokens that the walk has found.
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

/// Proves that every token fits, if a bound on the growth of the top frame is cached: only tokens that leave the frame
/// are measured. False if some of these do not fit, or were not measured.
bool BudgetedMasks::all_fit(const Configuration& from) {
  if (from.count != 1 || !one_for_each_byte_) return false;
  const StackTop& top = from.tops().front();
  // Near the end of a bounded region each state has a growth of its own, and walking is cheaper.
  const uint64_t budget = grammar_.wildcard_region(top.state, top.reg).max_length;
  if (budget > 0 && budget < grammar_.vocabulary().longest_token()) return false;
  const auto growth = frame_growth(grammar_, top);
  if (!growth) return false;
  most_ = within_top(top, growth->bytes);
  if (most_ > budget_) return false;
  for (const uint32_t boundary : growth->boundary_nodes) {
    if (top.parent) walk_.run(grammar_.vocabulary().trie(), boundary, top.parent->tops());
  }
  return most_ <= budget_ && !guessed_ && !walk_.registers().indescribable;
}

/// Bounds the tokens needed after a token that stays in the top frame, whose completion then grows by `growth` bytes:
/// one token for each byte of the frame, and those of the parent's completion.
uint64_t BudgetedMasks::within_top(const StackTop& top, uint64_t growth) {
  const uint64_t own = add_lengths(grammar_.remaining(top.state, top.reg), growth);
  return top.parent ? add_lengths(own, completions_.measure(*top.parent).tokens) : own;
}

/// Walks only tokens that leave the wildcard region of a stack top, if the need of all other tokens is bounded. If that
/// bound fits, these tokens are allowed together. If it does not, and the budget is nearly used up, tokens in the
/// region are allowed only where shortest completions are likely to go: the text has to head for its end.
bool BudgetedMasks::walk_out_of_wildcard(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  if (!vocabulary.tokenizes_all()) return false;
  const bool alone = from.count == 1;
  WildcardRegion text;
  uint64_t most = kInfinite;
  ByteSet likely;
  for (const StackTop& top : from.tops()) {
    likely.add(grammar_.likely_bytes(top.state, top.reg));
    const WildcardRegion found = grammar_.wildcard_region(top.state, top.reg);
    if (!(alone && found.exact) && found.max_length < TokenClass::kLengthSteps.front()) continue;
    const uint64_t needed = need_in_wildcard(from, top, grammar_.max_growth(top.state, top.reg));
    if (needed < most || text.max_length == 0) most = needed, text = found;
  }
  if (text.max_length == 0) return false;
  const TokenClassPtr within = vocabulary.token_class(text.characters);
  const uint64_t whole = alone && most > budget_ ? need_of_whole_characters(from) : most;
  const bool fits = whole <= budget_;
  if (fits) {
    same_from(whole);
    within->add(text.max_length, tokens_);
    walk_unlike(from);
    if (most > budget_) same_below(most), walk_unfinished(from);
    most = whole;
  } else {
    same_below(std::min(most, whole));
    const auto next = completions_.next_byte(from);
    const bool goes_on = next && text.characters.ascii.has(*next);
    if (within->count() < kMany || (goes_on && likely == ByteSet::all())) return false;
    const uint64_t far = 2 * measured_tokens(from) + kNear;
    if (budget_ >= far) {
      // A smaller budget would take the other branch, even if all tokens fit.
      same_from(far);
      most_ = far;
      return false;
    }
    same_below(far);
    if (likely != ByteSet::all()) {
      ByteSet inside = ByteSet::range(0x80, 0xFF);
      inside.add(text.characters.ascii);
      walk_.run_likely(vocabulary.trie(), from.tops(), inside);
    }
    if (goes_on) {
      walk_along_completion(from);
      most_ = kInfinite;
      return true;
    }
  }
  most_ = std::max(most_, most);
  // Other stack tops may allow tokens that this one's region does not contain.
  walk_.run(*within->leaving(alone ? text.leaving : ByteSet::all(), vocabulary), 0, from.tops());
  // In an unbounded region all tokens of the class were added above, if they fit.
  const bool all_added = text.max_length == WildcardRegion::kUnbounded && fits;
  const bool longer = !all_added && (!alone || !text.exact || text.max_length > kWildcardHorizon);
  if (longer) walk_.run(*within->long_tokens(text.max_length, vocabulary), 0, from.tops());
  return true;
}

/// Measures the tokens that the completion may start with. One of them must be allowed if the budget is minimal.
void BudgetedMasks::walk_along_completion(const Configuration& from) {
  const Trie& trie = grammar_.vocabulary().trie();
  const Configuration* at = &from;
  uint32_t node = 0;
  for (auto next = completions_.next_byte(*at); next; next = completions_.next_byte(*at)) {
    node = trie.child(node, *next);
    if (!node) return;
    at = &completions_.after_next_byte(*at);
    if (trie.token[node] != kNoToken && admits(at->tops())) walk_.tokens.push_back(trie.token[node]);
  }
}

/// Bounds the tokens needed after a token that stays in the wildcard region of a stack top; kInfinite if no bound is
/// known.
uint64_t BudgetedMasks::need_in_wildcard(const Configuration& from, const StackTop& top, uint64_t growth) {
  if (!one_for_each_byte_) return add_lengths(completions_.measure(from).bytes, growth);
  const uint64_t own = std::min(add_lengths(grammar_.remaining(top.state, top.reg), growth), bounds_.on_top(top));
  // The completion takes the stack top with the fewest bytes, which need not have the fewest tokens.
  if (from.count > 1) return top.parent ? add_lengths(own, completions_.cost(*top.parent)) : own;
  const uint64_t needed = top.parent ? add_lengths(own, completions_.measure(*top.parent).tokens) : own;
  if (needed <= budget_) same_from(needed);
  if (needed <= budget_ || growth == kInfinite) return needed;
  same_below(needed);
  const uint64_t after = after_any_text(top, growth);
  return std::min(needed, after == kInfinite ? after_usual_text(top) : after);
}

/// Bounds the need after tokens of the region that do not end within a character.
uint64_t BudgetedMasks::need_of_whole_characters(const Configuration& from) {
  const StackTop& top = from.tops().front();
  const uint64_t growth = grammar_.whole_growth(top.state, top.reg);
  return growth == kInfinite ? kInfinite : need_in_wildcard(from, top, growth);
}

/// Measures the tokens that end within a character.
void BudgetedMasks::walk_unfinished(const Configuration& from) {
  const TriePtr unfinished = unfinished_tokens(grammar_.vocabulary());
  std::vector<TokenId> tokens;
  for (uint32_t node = 0; node < unfinished->nodes(); ++node) unfinished->append_tokens(node, tokens);
  grammar_.vocabulary().add_duplicates(tokens);
  tokens_.remove(tokens);
  walk_.run(*unfinished, 0, from.tops());
}

/// Bounds the need by that of the frame after an arbitrary text of the region, if all texts leave it alike: a few bytes
/// to finish a character, or to differ from other texts, and then the completion of that frame.
uint64_t BudgetedMasks::after_any_text(const StackTop& top, uint64_t growth) {
  std::vector<std::string> exceptions;
  const auto after = any_text(top, exceptions);
  if (!after) return kInfinite;
  const uint64_t more = add_lengths(grammar_.remaining(top.state, top.reg), growth),
                 then = grammar_.remaining(after->state, after->reg);
  const Configuration& left = *walk_.store().make(*after);
  return add_lengths(completions_.measure(left).tokens, more - std::min(more, then));
}

/// Bounds the need after texts of the region over which the frame goes on like one in the state that most bytes lead
/// to, as a key that may become a known name does like one that may not. Lists the tokens of other texts.
uint64_t BudgetedMasks::after_usual_text(const StackTop& top) {
  const StackTop usual{grammar_.row(top.state).usual, top.reg, top.parent};
  if (usual.state == kDone || usual.state == top.state || !grammar_.shares_registers(top.state, usual.state) ||
      grammar_.wildcard_region(usual.state, usual.reg) != grammar_.wildcard_region(top.state, top.reg)) {
    return kInfinite;
  }
  const uint64_t needed = after_any_text(usual, grammar_.max_growth(usual.state, usual.reg));
  if (needed > budget_) return needed;
  const Trie& trie = grammar_.vocabulary().trie();
  const Restore exact(walk_.registers().only_endings, false);
  const Restore all(walk_.admits, {});
  const bool few = walk_.run_beside(trie, top.state, usual.state, top.reg, top.parent_depth(), trie.nodes() / 8);
  walk_.tokens.clear();
  unlike_.swap(walk_.differing);
  if (few && unlike_.size() <= kFew) return needed;
  unlike_.clear();
  return kInfinite;
}

/// Measures the tokens that `after_usual_text` has listed.
void BudgetedMasks::walk_unlike(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  std::vector<StackTop> tops, next;
  for (const TokenId token : unlike_) {
    tops.assign(from.tops().begin(), from.tops().end());
    for (const char byte : vocabulary.bytes(token)) {
      next.clear();
      for (const StackTop& top : tops) stepper_.step(top, static_cast<uint8_t>(byte), next);
      tops.swap(next);
    }
    if (!tops.empty() && admits(tops)) walk_.tokens.push_back(token);
  }
  vocabulary.add_duplicates(unlike_);
  tokens_.remove(unlike_);
}

/// Returns a configuration in which keys are replaced by one that stands for any new key, so that its results serve all
/// texts; `from` itself if the key matters. Tokens that hold several members may still tell the texts apart.
const Configuration& BudgetedMasks::representative(const Configuration& from) {
  std::vector<StackTop> any;
  std::vector<std::string> exceptions;
  for (const StackTop& top : from.tops()) {
    const auto after = any_text(top, exceptions);
    if (!after || !exceptions.empty()) return from;
    any.push_back(*after);
  }
  return *walk_.store().make(any);
}

/// Moves a stack top over an arbitrary text of its region, apart from exceptions; none if the text matters.
std::optional<StackTop> BudgetedMasks::any_text(const StackTop& top, std::vector<std::string>& exceptions) {
  Registers& registers = walk_.registers();
  registers.depth = top.parent_depth();
  StackTop after = top;
  if (!grammar_.skip_wildcard(top.state, after.reg, registers, exceptions)) return std::nullopt;
  return after;
}

bool BudgetedMasks::admits(std::span<const StackTop> tops) {
  const Need need = need_after(tops);
  most_ = std::max(most_, need.most);
  const bool fits = need.most <= budget_;
  if (fits) {
    same_from(need.most);
  } else {
    same_below(need.least);
  }
  return fits;
}

BudgetedMasks::Need BudgetedMasks::need_after(std::span<const StackTop> tops) {
  if (tops.size() == 1 && tops.front() == last_) return last_need_;
  std::vector<StackTop> all(tops.begin(), tops.end());
  const Need need = measure(*walk_.store().make(all));
  if (tops.size() == 1) last_ = tops.front(), last_need_ = need;
  return need;
}

/// Bounds the need by bytes before it measures tokens: one token for each byte is enough, and fewer than one for
/// `longest_token` bytes is not.
BudgetedMasks::Need BudgetedMasks::measure(const Configuration& at) {
  const uint64_t bytes = completions_.cost(at);
  if (bytes_fit(bytes, budget_)) return {0, bytes};
  const uint64_t least = bytes / std::max<uint64_t>(1, grammar_.vocabulary().longest_token());
  if (least > budget_) return {least, kInfinite};
  if (!measuring_) {
    // The first token of the current completion is always measured.
    completions_.start_round(completions_.measure(*from_).bytes + 1 + kSteps);
    completions_.measure_within(*from_);
    measuring_ = true;
  }
  if (const auto length = completions_.measure_within(at)) return {length->tokens, length->tokens};
  guessed_ = true;
  return {least, one_for_each_byte_ ? bytes : kInfinite};
}

}  // namespace constrain
