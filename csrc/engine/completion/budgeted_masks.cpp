#include "engine/completion/budgeted_masks.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/base/bits.h"
#include "engine/base/errors.h"
#include "engine/masks/frame_growth.h"
#include "engine/text/utf8.h"

namespace constrain {

namespace {

/// Steps of completions that may be measured for one mask, beside those of the text's own, and the frames they may
/// make.
constexpr uint64_t kSteps = 2048, kFrames = 131'072;

/// Work for the tokens of one mask: nodes visited, frames made, and the stacks after tokens times what one costs.
constexpr uint64_t kMostWork = 90'000, kStackWork = 2;

/// Ends a walk that takes too much work.
struct WalkedEnough {};

/// If the budget exceeds twice the completion by less than kNear, and more than kMany tokens would have to be measured,
/// tokens that stay in a wildcard region are refused: the text has to head for its end.
constexpr uint64_t kNear = 32;
constexpr size_t kMany = 4096;

/// Most nodes of the trie of tokens that leave a counted text, which are walked; or that one of many stacks walks
/// first, and how many are many.
constexpr size_t kMaxLeaving = 16'384, kManyStacks = 4;

/// Most bytes that a character may still need.
constexpr uint64_t kRestOfCharacter = 3;

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

/// Runs a walk; false if it took too much work.
template <class Walk>
bool finishes(const Walk& walk) {
  try {
    walk();
    return true;
  } catch (const WalkedEnough&) {
    return false;
  }
}

}  // namespace

BudgetedMasks::BudgetedMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      walk_(grammar, scratch_, true),
      completions_(grammar, walk_.store(), walk_.registers()),
      stepper_(grammar, walk_.store(), walk_.registers()),
      counted_(grammar, stepper_),
      usual_(grammar, walk_),
      bounds_(grammar),
      start_(walk_.store().make(StackTop{grammar.start(), 0, nullptr})),
      one_for_each_byte_(grammar.bytes_bound_tokens()) {
  walk_.store().set_max_work(kMoreWork * grammar.limits().max_work);
  walk_.admits = [this](std::span<const StackTop> tops, const Configuration* all) { return admits(tops, all); };
}

std::shared_ptr<BudgetedMasks> BudgetedMasks::shared(const CompiledGrammar& grammar) {
  return grammar.shared_stage<BudgetedMasks>([](const BudgetedMasks& masks) { return masks.full(); },
                                             [&] { return std::make_shared<BudgetedMasks>(grammar); });
}

void BudgetedMasks::measure_bytes() {
  constexpr size_t kEntry = 120;
  bytes_ = scratch_.arena.bytes() + kEntry * (completions_.size() + bounds_.size() + reach_.size()) + made_.bytes();
}

const Configuration& BudgetedMasks::after(const Configuration& from, std::string_view bytes) {
  // Texts that are followed continue with more than their completions.
  start_work(false);
  return *stepper_.advance(from, bytes);
}

uint64_t BudgetedMasks::tokens(const Configuration& from) {
  start_work(true);
  return measured_tokens(with_calls(from));
}

uint64_t BudgetedMasks::measured_tokens(const Configuration& from) {
  const uint64_t tokens = completions_.measure(from).tokens;
  if (tokens == kInfinite) {
    throw VocabularyError("a shortest completion of the text is not tokenizable: the vocabulary lacks bytes");
  }
  return tokens;
}

bool BudgetedMasks::fits(const Configuration& from, uint64_t budget) {
  start_work(true);
  const Configuration& at = representative(from);
  return bytes_fit(completions_.cost(at), budget) || measured_tokens(at) <= budget;
}

std::string BudgetedMasks::completion(const Configuration& from) {
  start_work(true);
  return completions_.text(from);
}

MaskPtr BudgetedMasks::mask(const Configuration& from, uint64_t budget, const Mask& possible) {
  start_work(true);
  possible_ = &possible;
  const Configuration& representative = this->representative(from);
  const MadePtr made = find_or_make(representative, budget);
  const bool same = !made || made->undecided.empty() || &representative == &from;
  const MaskPtr mask = !made ? nullptr : same ? made->mask : leaving_at_once(from, budget, *made);
  grammar_.counters().visited += std::exchange(walk_.visited, 0);
  return mask;
}

/// Derives the mask of a configuration from that of its representative. Both may differ in undecided tokens, such as
/// those that continue with further members. Only those that leave a wildcard region by their first byte are measured.
MaskPtr BudgetedMasks::leaving_at_once(const Configuration& from, uint64_t budget, const Made& others) {
  ByteSet leaving;
  for (const StackTop& top : from.tops()) {
    const CharacterClass within = grammar_.wildcard_region(top.state, top.reg).characters;
    const bool any_beyond = within.beyond_ascii && within.excluded.empty();
    leaving.add(~within.ascii & (any_beyond ? ByteSet::range(0, 0x7F) : ByteSet::all()));
  }
  start(from, budget);
  tokens_.add(others.mask);
  // Tokens that are not reached are refused.
  finishes([&] { walk_.run(select(others.undecided), 0, from.tops(), leaving); });
  measure_pending();
  return listed(from);
}

/// Selects some tokens of the vocabulary's trie.
Trie BudgetedMasks::select(const std::vector<TokenId>& tokens) const {
  const Trie& trie = grammar_.vocabulary().trie();
  std::vector<uint32_t> wanted((trie.nodes() + 31) / 32), nodes;
  for (const TokenId token : tokens) bits::set(wanted.data(), grammar_.vocabulary().node(token));
  const auto word = [&](size_t i) { return wanted[i]; };
  bits::for_each(wanted.size(), word, [&](size_t node) { nodes.push_back(static_cast<uint32_t>(node)); });
  return trie.select(nodes);
}

/// Null if every token fits.
BudgetedMasks::MadePtr BudgetedMasks::find_or_make(const Configuration& from, uint64_t budget) {
  if (const auto cached = reach_.find(&from); cached != reach_.end() && cached->second <= budget) return nullptr;
  const std::array<uint64_t, 2> key{reinterpret_cast<uintptr_t>(&from), budget};
  const auto any_budget = std::span(key).first(1);
  if (const auto cached = made_.find(any_budget); cached && (*cached)->holds_for(budget)) return *cached;
  if (const auto cached = made_.find(key)) return *cached;
  Made made = make(from, budget);
  // Guesses for one budget say nothing about others.
  if (guessed_) made.from = budget, made.below = budget + 1;
  const auto kept = std::make_shared<const Made>(std::move(made));
  made_.put(key, kept, kept->bytes());
  made_.put(any_budget, kept, 0);
  return kept;
}

BudgetedMasks::Made BudgetedMasks::make(const Configuration& from, uint64_t budget) {
  start(from, budget);
  if (all_fit(from)) {
    reach_[&from] = most_;
    return {.from = most_, .below = kInfinite, .mask = nullptr, .undecided = {}};
  }
  start(from, budget);
  const bool finished = finishes([&] {
    if (!walk_out_of_wildcard(from)) walk_.run(grammar_.vocabulary().trie(), 0, from.tops());
  });
  if (!finished) {
    // Tokens that were not reached are refused.
    guessed_ = true;
    most_ = kInfinite;
    walk_along_completion(from);
  }
  measure_pending();
  // Some possible tokens were refused for the representative, and not measured.
  if (!decided()) most_ = kInfinite;
  if (!guessed_) reach_[&from] = most_;
  return {same_from_, same_below_, most_ <= budget ? nullptr : listed(from), std::move(walk_.undecided)};
}

void BudgetedMasks::start(const Configuration& from, uint64_t budget) {
  from_ = &from, budget_ = budget, measuring_ = guessed_ = alone_ = false;
  allow_work();
  last_.reset();
  tokens_.start(grammar_.vocabulary().mask_words());
  walk_.registers().indescribable = false;
  walk_.tokens.clear(), walk_.undecided.clear(), pending_.clear();
  most_ = same_from_ = 0;
  same_below_ = kInfinite;
}

uint64_t BudgetedMasks::work() const { return walk_.visited + walk_.store().work() + kStackWork * judged_; }

void BudgetedMasks::allow_work() { most_work_ = work() + kMostWork; }

/// Makes a mask of the tokens that the walk has found.
MaskPtr BudgetedMasks::listed(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  vocabulary.add_duplicates(walk_.tokens);
  tokens_.add(walk_.tokens);
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
  if (!top.parent) return true;
  const bool finished = finishes([&] {
    for (const uint32_t boundary : growth->boundary_nodes) {
      walk_.run(growth->trie(grammar_.vocabulary()), boundary, top.parent->tops());
    }
  });
  measure_pending();
  return finished && most_ <= budget_ && !guessed_ && decided();
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
  if (text.max_length == 0) return most > budget_ && (walk_usual_text(from) || walk_counted_text(from));
  const bool fits = most <= budget_;
  if (!fits && (walk_usual_text(from) || walk_counted_text(from))) return true;
  const TokenClassPtr within = vocabulary.token_class(text.characters);
  if (fits) {
    same_from(most);
    within->add(text.max_length, tokens_);
  } else {
    same_below(most);
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
  walk(*within->leaving(alone ? text.leaving : ByteSet::all(), vocabulary), from);
  // In an unbounded region all tokens of the class were added above, if they fit.
  const bool all_added = text.max_length == WildcardRegion::kUnbounded && fits;
  const bool longer = !all_added && (!alone || !text.exact || text.max_length > kWildcardHorizon);
  if (longer) walk(*within->long_tokens(text.max_length, vocabulary), from);
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
    if (trie.token[node] == kNoToken) continue;
    const uint64_t need = completions_.measure(*at).tokens;
    if (fits(Need{need, need})) walk_.tokens.push_back(trie.token[node]);
  }
}

/// Bounds the tokens needed after a token that stays in the wildcard region of a stack top; kInfinite if no bound is
/// known.
uint64_t BudgetedMasks::need_in_wildcard(const Configuration& from, const StackTop& top, uint64_t growth) {
  if (!one_for_each_byte_) return add_lengths(completions_.measure(from).bytes, growth);
  const uint64_t own = std::min(add_lengths(grammar_.remaining(top.state, top.reg), growth), bounds_.on_top(top));
  // The completion takes the stack top with the fewest bytes, which need not have the fewest tokens.
  if (from.count > 1) return top.parent ? add_lengths(own, completions_.cost(*top.parent)) : own;
  return top.parent ? add_lengths(own, completions_.measure(*top.parent).tokens) : own;
}

/// Measures the tokens that end within a character.
void BudgetedMasks::walk_unfinished(const Configuration& from) {
  const TriePtr unfinished = unfinished_tokens(grammar_.vocabulary());
  std::vector<TokenId> tokens;
  unfinished->append_subtree(0, tokens);
  grammar_.vocabulary().add_duplicates(tokens);
  tokens_.remove(tokens);
  walk(*unfinished, from);
}

/// Judges the tokens of a wildcard region together, if nearly all of them lead to one configuration, exactly: those
/// that end within a character reach it after a few more bytes. False if they do not. Where its completion does not
/// fit, tokens over which a parent goes on may lead to a shorter one.
bool BudgetedMasks::walk_usual_text(const Configuration& from) {
  const UsualText* text = one_for_each_byte_ ? usual_.from(from) : nullptr;
  if (!text) return false;
  allow_work();  // the text may have been found before
  const Vocabulary& vocabulary = grammar_.vocabulary();
  const TokenClassPtr within = vocabulary.token_class(text->characters);
  const uint64_t need = measured_tokens(*text->after), most = need + kRestOfCharacter;
  if (need > budget_ && text->over) {
    same_below(need);
    return false;
  }
  if (need <= budget_) {
    within->add(WildcardRegion::kUnbounded, tokens_);
    std::vector<TokenId> unlike = text->unlike;
    vocabulary.add_duplicates(unlike);
    tokens_.remove(unlike);
    same_from(need);
  } else {
    same_below(need);
  }
  if (need <= budget_ && budget_ < most) {
    same_below(most);
    walk_unfinished(from);
  } else if (most <= budget_) {
    same_from(most);
  }
  most_ = std::max(most_, most);
  walk(select(text->unlike), from);
  walk(*within->leaving(text->leaving, vocabulary), from);
  return true;
}

/// Judges the tokens of a counted text together, those of one length at a time. Where longer ones do not fit, shorter
/// ones are refused. False if there is no such text, or if many tokens leave it.
bool BudgetedMasks::walk_counted_text(const Configuration& from) {
  if (from.count > 1 || !one_for_each_byte_) return false;
  const auto text = counted_.from(from.tops().front());
  const bool indescribable = std::exchange(walk_.registers().indescribable, false);
  if (!text || indescribable || (text->cut && text->after.size() < TokenClass::kLengthSteps.front())) return false;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  const TokenClassPtr within = vocabulary.token_class(text->characters);
  const TriePtr leaving = within->leaving(text->leaving, vocabulary);
  if (leaving->nodes() > kMaxLeaving) return false;
  uint64_t least = 1;
  bool unfinished = false;
  for (uint64_t length = 1; length <= text->after.size(); ++length) {
    const Need need = measure(*walk_.store().make(text->after[length - 1]));
    if (!fits(need)) least = length + 1;
    if (!text->characters.beyond_ascii) continue;
    const uint64_t most = add_lengths(need.most, kRestOfCharacter);
    most_ = std::max(most_, most);
    if (need.most > budget_) continue;
    if (most <= budget_) {
      same_from(most);
    } else {
      same_below(most);
      unfinished = true;
    }
  }
  if (least <= text->after.size()) {
    within->add(text->endless ? WildcardRegion::kUnbounded : text->after.size(), tokens_);
    if (least > 1) within->remove(least - 1, tokens_);
  }
  if (unfinished) walk_unfinished(from);
  if (least > 1) walk_along_completion(from);
  walk_.run(*leaving, 0, from.tops());
  if (text->cut) walk_.run(*within->long_tokens(text->after.size(), vocabulary), 0, from.tops());
  return true;
}

/// Returns a configuration in which keys are replaced by one that stands for any new key, so that its results serve all
/// texts; `from` itself if the key matters. Tokens that hold several members may still tell the texts apart.
const Configuration& BudgetedMasks::representative(const Configuration& unlike) {
  const Configuration& from = with_calls(unlike);
  std::vector<StackTop> any;
  std::vector<std::string> exceptions;
  for (const StackTop& top : from.tops()) {
    const auto after = usual_.any_text(top, exceptions);
    if (!after || !exceptions.empty()) return from;
    any.push_back(*after);
  }
  return *walk_.store().make(any);
}

/// Returns a configuration in which frames that embed others call them, where only completions matter: it is stepped
/// and measured faster, and shared by arrays with different items before.
const Configuration& BudgetedMasks::with_calls(const Configuration& from) {
  std::vector<StackTop> tops;
  bool found = false;
  for (StackTop top : from.tops()) {
    const Configuration* inside = grammar_.make_call(top.state, top.reg, walk_.registers());
    found |= inside != nullptr;
    if (inside) {
      add_call(*inside, walk_.store().make(top), tops);
    } else {
      tops.push_back(top);
    }
  }
  return found ? with_calls(*walk_.store().make(tops)) : from;
}

/// Puts the stacks of an embedded configuration on top of its frame.
void BudgetedMasks::add_call(const Configuration& inside, const Configuration* frame, std::vector<StackTop>& out) {
  std::vector<const Configuration*> nodes{&inside};
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const StackTop& top : nodes[i]->tops()) {
      if (top.parent && std::ranges::find(nodes, top.parent) == nodes.end()) nodes.push_back(top.parent);
    }
  }
  std::ranges::sort(nodes, {}, &Configuration::depth);
  std::unordered_map<const Configuration*, const Configuration*> parents{{nullptr, frame}};
  for (const Configuration* node : nodes) {
    std::vector<StackTop> tops(node->tops().begin(), node->tops().end());
    for (StackTop& top : tops) top.parent = parents.at(top.parent);
    if (node == &inside) out.insert(out.end(), tops.begin(), tops.end());
    parents[node] = walk_.store().make(tops);
  }
}

/// Walks a trie. If there are many stacks, most tokens are allowed by the completion of one of them, which is walked
/// alone first; and tokens that may not come next are left out. Texts with one representative differ in these only
/// where a token has a further member, after a comma.
void BudgetedMasks::walk(const Trie& trie, const Configuration& from) {
  if (from.count < kManyStacks || trie.nodes() > kMaxLeaving) return walk_.run(trie, 0, from.tops());
  size_t found = walk_.tokens.size();
  alone_ = true;
  walk_.run(trie, 0, {&completions_.cheapest_stack(from), 1});
  alone_ = false;
  const Vocabulary& vocabulary = grammar_.vocabulary();
  std::vector<uint32_t> possible(vocabulary.mask_words()), others;
  possible_->write(possible.data(), possible.size());
  const auto may_come = [&](TokenId token) {
    const bool told = vocabulary.bytes(token).find(',') == std::string_view::npos;
    return !told || possible[static_cast<size_t>(token) / 32] >> (token % 32) & 1;
  };
  for (uint32_t node = 1; node < trie.nodes(); ++node) {
    const TokenId token = trie.token[node];
    if (token == kNoToken) continue;
    if (found < walk_.tokens.size() && walk_.tokens[found] == token) {
      ++found;
    } else if (may_come(token)) {
      others.push_back(node);
    }
  }
  walk_.run(trie.select(others), 0, from.tops());
}

/// Decides about the stack tops after a token by their bytes, or admits them until `measure_pending`.
bool BudgetedMasks::admits(std::span<const StackTop> tops, const Configuration* all) {
  judged_ += tops.size();
  if (work() > most_work_) throw WalkedEnough();
  if (tops.size() > 1 || tops.front() != last_) {
    tops_.assign(tops.begin(), tops.end());
    stepper_.forget(tops_);
    last_after_ = all && std::ranges::equal(tops, tops_) ? all : walk_.store().make(tops_);
    last_need_ = bound(*last_after_);
    last_ = tops.size() == 1 ? std::optional(tops.front()) : std::nullopt;
  }
  if (alone_) return last_need_.most <= budget_ && fits(last_need_);
  const bool open = last_need_.least <= budget_ && budget_ < last_need_.most;
  if (open) pending_.push_back({walk_.tokens.size(), last_after_, completions_.cost(*last_after_)});
  return open || fits(last_need_);
}

/// Measures the completions after tokens that were admitted so far, the shortest first: they are the likeliest to fit,
/// and to be measured before the work is done.
void BudgetedMasks::measure_pending() {
  std::ranges::stable_sort(pending_, {}, &Pending::bytes);
  for (const Pending& one : pending_) {
    if (!fits(measure(*one.after))) walk_.tokens[one.token] = kNoToken;
  }
  std::erase(walk_.tokens, kNoToken);
  pending_.clear();
}

bool BudgetedMasks::fits(const Need& need) {
  most_ = std::max(most_, need.most);
  const bool fits = need.most <= budget_;
  if (fits) {
    same_from(need.most);
  } else {
    same_below(need.least);
  }
  return fits;
}

/// Bounds the need by bytes: one token for each byte is enough, and fewer than one for `longest_token` bytes is not.
BudgetedMasks::Need BudgetedMasks::bound(const Configuration& at) {
  const uint64_t bytes = completions_.cost(at);
  if (bytes_fit(bytes, budget_)) return {0, bytes};
  if (!grammar_.is_remaining_least()) return {0, kInfinite};
  return {bytes / std::max<uint64_t>(1, grammar_.vocabulary().longest_token()), kInfinite};
}

BudgetedMasks::Need BudgetedMasks::measure(const Configuration& at) {
  const Need need = bound(at);
  if (need.most <= budget_ || budget_ < need.least) return need;
  if (!measuring_) {
    // The first token of the current completion is always measured.
    completions_.start_round(*from_, kSteps, kFrames);
    measuring_ = true;
  }
  if (const auto length = completions_.measure_within(with_calls(at))) return {length->tokens, length->tokens};
  guessed_ = true;
  return need;
}

}  // namespace constrain
