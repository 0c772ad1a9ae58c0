#include "engine/mask_builder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "engine/portable.h"

namespace constrain {

namespace {

/// More readings than this are walked together: they tend to agree after a byte or two.
constexpr size_t kJointAbove = 1024;

/// Fewer bytes on which two frames do the same are not looked up, but walked.
constexpr int kMinAgreed = 16;

/// Words that descriptions seldom exceed.
constexpr size_t kUsualWords = 24;

/// Masks that depend on more levels of frames are not kept.
constexpr size_t kMaxLevels = 32;

/// What waits below all heads alike. False where that differs.
bool one_below(const Configuration& configuration, const Configuration*& below) {
  const auto heads = configuration.heads();
  below = heads.front().below;
  return std::all_of(heads.begin(), heads.end(), [&](const Head& head) { return head.below == below; });
}

uint32_t depth_below(const Head& head) { return head.below ? head.below->depth : 0; }

}  // namespace

MaskBuilder::Scratch& MaskBuilder::scratch() {
  thread_local Scratch scratch;
  return scratch;
}

MaskBuilder::MaskBuilder(const CompiledGrammar& grammar, const Configuration& configuration)
    : grammar_(grammar),
      configuration_(configuration),
      tokens_(scratch().tokens),
      footprint_(scratch().footprint),
      walk_(grammar, scratch().walk) {
  walk_.known_below = [&grammar](const Head& head, uint32_t node) { return portable_below(grammar, head, node); };
}

MaskPtr MaskBuilder::build() {
  if (MaskPtr known = find()) {
    ++grammar_.counters().found;
    return known;
  }
  const MaskPtr mask = compute();
  ++grammar_.counters().built;
  grammar_.counters().visited += walk_.visited;
  if (describable_ && !walk_.indescribable()) keep(mask);
  return mask;
}

// ---- Masks by description.

bool MaskBuilder::describe(const Configuration& configuration, Detail detail, Key& key) const {
  if (configuration.count > kJointAbove) return false;
  // A frame at the bottom is told from one that leaves the rest of a token to others.
  uint64_t waiting = 0;
  for (const Head& head : configuration.heads()) waiting = waiting << 1 | (head.below ? 1 : 0);
  key.push_back(waiting << 32 | configuration.count);
  for (const Head& head : configuration.heads()) {
    if (!grammar_.describe(head.state, head.reg, depth_below(head), detail, key)) return false;
  }
  return true;
}

MaskPtr MaskBuilder::find() const {
  Key& key = scratch().key;
  key.assign(1, configuration_.accepting);
  const Configuration* at = &configuration_;
  Detail detail = Detail::outline;
  while (describe(*at, detail, key)) {
    const auto known = grammar_.masks().find(key);
    if (!known) return nullptr;
    if (known->next == KnownMask::Next::done) return known->mask;
    if (known->next == KnownMask::Next::fully) {
      detail = Detail::full;
      continue;
    }
    detail = Detail::outline;
    if (!one_below(*at, at) || !at) return nullptr;
  }
  return nullptr;
}

void MaskBuilder::keep(const MaskPtr& mask) const {
  Key& key = scratch().key;
  key.assign(1, configuration_.accepting);
  const Configuration* at = &configuration_;
  for (size_t level = 0; level < kMaxLevels; ++level) {
    if (!describe(*at, Detail::outline, key)) return;
    if (consulted(*at)) {
      grammar_.masks().keep(key, {KnownMask::Next::fully, nullptr}, 0);
      if (!describe(*at, Detail::full, key)) return;
    }
    const Configuration* below = nullptr;
    const bool uniform = one_below(*at, below);
    const uint32_t next = below ? below->depth : 0;
    if (uniform && (!below || next < walk_.lowest())) {
      grammar_.masks().keep(key, {KnownMask::Next::done, mask}, mask->bytes);
      return;
    }
    if (!uniform) {
      const auto heads = at->heads();
      const bool needed = std::any_of(heads.begin(), heads.end(), [&](const Head& head) {
        return head.below && head.below->depth >= walk_.lowest();
      });
      if (!needed) grammar_.masks().keep(key, {KnownMask::Next::done, mask}, mask->bytes);
      return;
    }
    grammar_.masks().keep(key, {KnownMask::Next::below, nullptr}, 0);
    at = below;
  }
}

/// Lists the frames whose rules may be asked for more than their outlines.
void MaskBuilder::note_frames() {
  footprint_.frames.clear();
  const Configuration* at = &configuration_;
  for (size_t level = 0; at && level < kMaxLevels; ++level) {
    for (const Head& head : at->heads()) {
      if (const Rule* rule = grammar_.rule(head.state)) footprint_.frames.push_back({rule, depth_below(head)});
    }
    if (!one_below(*at, at)) break;
  }
  walk_.record(footprint_);
}

bool MaskBuilder::consulted(const Configuration& configuration) const {
  const auto heads = configuration.heads();
  return std::any_of(heads.begin(), heads.end(), [&](const Head& head) {
    return std::any_of(footprint_.frames.begin(), footprint_.frames.end(), [&](const Footprint::Frame& frame) {
      return frame.consulted && frame.rule == grammar_.rule(head.state) && frame.depth == depth_below(head);
    });
  });
}

// ---- Masks from frames.

MaskPtr MaskBuilder::compute() {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  note_frames();
  tokens_.start(vocabulary.mask_words());
  // Where the top frames may be over before the next byte those below them speak as well.
  std::vector<const Configuration*> pending{&configuration_};
  for (size_t i = 0; i < pending.size(); ++i) {
    const Configuration& at = *pending[i];
    walk_.consult(at);
    if (at.count > kJointAbove) {
      add_jointly(at);
      continue;
    }
    for (const Head& head : at.heads()) {
      if (!head.below || !grammar_.row(head.state).accepting) continue;
      if (std::find(pending.begin(), pending.end(), head.below) == pending.end()) pending.push_back(head.below);
    }
    add(at);
  }
  if (configuration_.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens_.add(id);
  }
  return vocabulary.masks().intern(tokens_);
}

void MaskBuilder::add(const Configuration& configuration) {
  for (const Head& head : configuration.heads()) {
    const InnerPtr inner = this->inner(head);
    if (inner->within) inner->within->add(inner->room, tokens_);
    if (inner->many) tokens_.add(inner->many);
    allow(inner->tokens);
    walk_.tokens.clear();
    follow(inner->exits, head);
    if (const Inner* like = inner->like.get()) {
      for (const Inner::Run& run : like->runs) {
        if (!inner->agreed.has(run.byte)) continue;
        allow(std::span(like->tokens).subspan(run.tokens, run.tokens_end - run.tokens));
        follow(std::span(like->exits).subspan(run.exits, run.exits_end - run.exits), head);
      }
    }
    allow(walk_.tokens);
  }
}

/// Goes on with the frames below where one is over.
void MaskBuilder::follow(std::span<const Inner::Exit> exits, const Head& head) {
  if (exits.empty() || !head.below) return;
  walk_.consult(*head.below);
  for (const Inner::Exit& exit : exits) walk_.run(*exit.trie, exit.node, head.below->heads());
}

void MaskBuilder::add_jointly(const Configuration& configuration) {
  struct Free {
    ByteSet leaving;
    std::vector<Head> heads;
  };
  const Vocabulary& vocabulary = grammar_.vocabulary();
  std::map<TokenClassPtr, Free> free;
  std::vector<Head> rest;
  for (const Head& head : configuration.heads()) {
    const FreeText text = grammar_.free_text(head.state, head.reg);
    if (text.room == FreeText::kUnbounded) {
      Free& readings = free[vocabulary.token_class(text.characters)];
      readings.leaving.add(text.leaving);
      readings.heads.push_back(head);
    } else {
      rest.push_back(head);
    }
  }
  walk_.tokens.clear();
  for (const auto& [within, readings] : free) {
    within->add(FreeText::kUnbounded, tokens_);
    walk_.run(*within->leaving(readings.leaving, vocabulary), 0, readings.heads);
    walk_.run(*within->far(FreeText::kUnbounded, vocabulary), 0, readings.heads);
  }
  if (!rest.empty()) walk_.run(vocabulary.trie(), 0, rest);
  allow(walk_.tokens);
}

void MaskBuilder::allow(std::span<const TokenId> tokens) {
  tokens_.add(tokens);
  const Vocabulary& vocabulary = grammar_.vocabulary();
  if (!vocabulary.has_duplicates()) return;
  for (TokenId token : tokens) {
    while ((token = vocabulary.next_duplicate(token)) != kNoToken) tokens_.add(token);
  }
}

// ---- Frames alone.

InnerPtr MaskBuilder::inner(const Head& head) {
  Key key;
  key.reserve(kUsualWords);
  return grammar_.describe_portably(head.state, head.reg, key) ? portable_inner(head, key) : described_inner(head);
}

InnerPtr MaskBuilder::portable_inner(const Head& head, const Key& key) {
  InnerCache& cache = grammar_.vocabulary().inners();
  if (const auto known = cache.find(key)) return *known;
  auto made = std::make_shared<const Inner>(walk_alone(head));
  cache.keep(key, made, made->bytes());
  return made;
}

InnerPtr MaskBuilder::described_inner(const Head& head) {
  const uint32_t depth = depth_below(head);
  const Rule* rule = grammar_.rule(head.state);
  Key key;
  key.reserve(kUsualWords);
  InnerCache& cache = grammar_.inners();
  const auto describe = [&](Detail detail) {
    key.clear();
    if (!grammar_.describe(head.state, head.reg, depth, detail, key)) return false;
    if (detail == Detail::full) key.push_back(0);  // an outline is never the same
    return true;
  };
  const bool outlined = describe(Detail::outline);
  auto known = outlined ? cache.find(key) : std::nullopt;
  const bool fully = known && !*known;
  if (fully) {
    footprint_.consult(rule, depth);
    known = describe(Detail::full) ? cache.find(key) : std::nullopt;
  }
  if (known) return *known;

  const uint64_t asked = footprint_.asked;
  const bool others_indescribable = std::exchange(walk_.registers().indescribable, false);
  auto made = std::make_shared<const Inner>(walk_alone(head));
  const bool indescribable =
      std::exchange(walk_.registers().indescribable, others_indescribable || walk_.indescribable());
  const bool consulted = footprint_.asked != asked;
  describable_ &= outlined;
  if (!outlined || indescribable) return made;
  if (consulted && !fully) cache.keep(key, nullptr, 0);
  if (fully || !consulted || describe(Detail::full)) cache.keep(key, made, made->bytes());
  return made;
}

Inner MaskBuilder::walk_alone(const Head& head) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  ++grammar_.counters().inners;
  Inner inner;
  std::vector<TriePtr> tries;
  const FreeText text = grammar_.free_text(head.state, head.reg);
  walk_.tokens.clear();
  if (text.exact || text.room >= TokenClass::kSteps.front()) {
    inner.within = vocabulary.token_class(text.characters);
    inner.room = text.room;
    if (!walk_tails(head, text, inner)) {
      find_like(head, text, inner);
      tries.push_back(inner.within->leaving(text.leaving, vocabulary));
      const bool far = !text.exact || text.room > FreeTextFinder::kHorizon;
      if (far) tries.push_back(inner.within->far(text.room, vocabulary));
    }
  } else {
    find_like(head, text, inner);
    tries.push_back(vocabulary.shared_trie());
  }
  for (const TriePtr& trie : tries) walk_alone(trie, head, ~inner.agreed, inner);
  inner.tokens = walk_.tokens;
  if (inner.tokens.size() <= vocabulary.mask_words()) return inner;

  auto many = std::make_shared<TokenBits>(vocabulary.mask_words());
  for (TokenId token : inner.tokens) {
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) many->add(token);
  }
  inner.many = std::move(many);
  inner.tokens = {}, inner.runs = {};
  inner.by_byte = false;
  return inner;
}

/// Where the frame is the same after all texts of a class it suffices to look at what follows them: many tokens end
/// alike.
bool MaskBuilder::walk_tails(const Head& head, const FreeText& text, Inner& inner) {
  const Row& row = grammar_.row(head.state);
  if (text.room != FreeText::kUnbounded || row.accepting) return false;
  Registers& registers = walk_.registers();
  registers.depth = depth_below(head);
  std::vector<std::string> exceptions;
  Head after = head;
  if (!grammar_.pass_text(head.state, after.reg, registers, exceptions)) return false;

  const Vocabulary& vocabulary = grammar_.vocabulary();
  const ByteSet leaving = text.leaving & row.bytes;
  const TriePtr tails = inner.within->tails(leaving, vocabulary);
  if (!tails) return false;
  const bool indescribable = std::exchange(registers.indescribable, false);
  walk_alone(tails, after, ByteSet::all(), inner);
  const bool alike = !std::exchange(registers.indescribable, indescribable);
  inner.runs.clear();
  if (!alike) {
    walk_.tokens.clear(), inner.exits.clear();
    return false;
  }
  if (!exceptions.empty()) {
    const auto special = std::make_shared<const Trie>(vocabulary.trie().starting_with(std::move(exceptions)));
    if (special->nodes() > 1) {
      drop_tokens(*special);
      walk_alone(special, head, ByteSet::all(), inner);
    }
  }
  sort_by_first_byte(inner);
  return true;
}

/// Drops the tokens of a trie from those found so far.
void MaskBuilder::drop_tokens(const Trie& trie) {
  std::vector<TokenId> dropped;
  std::ranges::copy_if(trie.token, std::back_inserter(dropped), [](TokenId token) { return token != kNoToken; });
  std::ranges::sort(dropped);
  std::erase_if(walk_.tokens, [&](TokenId token) { return std::ranges::binary_search(dropped, token); });
}

/// Makes the runs anew, for tokens that were found in another order. Exits have no order then.
void MaskBuilder::sort_by_first_byte(Inner& inner) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  inner.runs.clear();
  inner.by_byte = inner.exits.empty();
  if (!inner.by_byte) return;
  std::array<uint32_t, 256> place{};
  for (const TokenId token : walk_.tokens) ++place[vocabulary.first_byte(token)];
  uint32_t end = 0;
  for (size_t byte = 0; byte < place.size(); ++byte) {
    const uint32_t begin = end;
    end += std::exchange(place[byte], begin);
    if (end > begin) inner.runs.push_back({static_cast<uint8_t>(byte), begin, end, 0, 0});
  }
  std::vector<TokenId> sorted(walk_.tokens.size());
  for (const TokenId token : walk_.tokens) sorted[place[vocabulary.first_byte(token)]++] = token;
  walk_.tokens.swap(sorted);
}

void MaskBuilder::walk_alone(const TriePtr& trie, const Head& head, const ByteSet& first, Inner& inner) {
  auto& runs = walk_.runs;
  runs.clear();
  walk_.exits.clear();
  auto tokens = static_cast<uint32_t>(walk_.tokens.size());
  walk_.run_alone(*trie, head.state, head.reg, depth_below(head), first);
  // At the very start the frames below speak for themselves.
  size_t next = !walk_.exits.empty() && walk_.exits.front() == 0 ? 1 : 0;
  for (const TrieWalk::Run& run : runs) {
    const auto exits = static_cast<uint32_t>(inner.exits.size());
    for (; next < run.exits_end; ++next) inner.exits.push_back({trie, walk_.exits[next]});
    const auto tokens_end = static_cast<uint32_t>(run.tokens_end),
               exits_end = static_cast<uint32_t>(inner.exits.size());
    if (tokens_end > tokens || exits_end > exits)
      inner.runs.push_back({run.byte, tokens, tokens_end, exits, exits_end});
    tokens = tokens_end;
  }
}

/// Looks at what a frame allows that most bytes lead to from `head`, and that does the same as `head` on many of these.
/// While a key may still become a name, say, most of what it may be is no name.
void MaskBuilder::find_like(const Head& head, const FreeText& text, Inner& inner) {
  const Row& row = grammar_.row(head.state);
  const StateId usual = row.usual;
  if (usual == kDone || usual == head.state || !grammar_.fits(head.state, usual)) return;
  const Row& other = grammar_.row(usual);
  if (other.usual != usual || !(grammar_.free_text(usual, head.reg) == text)) return;
  ByteSet agreed;
  int count = 0;
  for (int byte = row.bytes.next(0), end; byte >= 0; byte = row.bytes.next(end)) {
    // Bytes with the same entries go together.
    const auto same = [&](int at) {
      return row.action[at] == row.action[byte] && other.action[at] == other.action[byte];
    };
    for (end = byte + 1; end < 256 && same(end);) ++end;
    if (!row.agrees(other, static_cast<uint8_t>(byte))) continue;
    count += end - byte;
    while (byte < end) agreed.add(static_cast<uint8_t>(byte++));
  }
  if (count < kMinAgreed) return;
  InnerPtr like = this->inner({usual, head.reg, head.below});
  walk_.tokens.clear();
  if (!like->by_byte) return;
  inner.like = std::move(like);
  inner.agreed = agreed;
}

}  // namespace constrain
