#include "engine/masks/frame_tokens_builder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "engine/masks/erase_tokens.h"

namespace constrain {

namespace {

/// Usual size of cache keys, in words.
constexpr size_t kUsualWords = 24;

/// Sorts exits by byte, and keeps the order of those with equal ones.
std::vector<Exits::Exit> by_byte(const std::vector<Exits::Exit>& exits) {
  std::array<uint32_t, 257> begins{};
  for (const Exits::Exit& exit : exits) ++begins[exit.byte + size_t{1}];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<Exits::Exit> sorted(exits.size());
  for (const Exits::Exit& exit : exits) sorted[begins[exit.byte]++] = exit;
  return sorted;
}

/// Begins keys of unions, in place of the number of a rule, which is not 0, and is alone in no key of these.
constexpr uint64_t kUnion = 0;

/// Appended to keys with a node, to tell them from those of frames at the start of a token.
constexpr uint64_t kEntered = 2;

}  // namespace

size_t FrameTokens::bytes() const {
  size_t sum = sizeof(FrameTokens) + (allowed ? allowed->bytes : 0);
  for (const ExitsPtr& one : exits) sum += sizeof(Exits) + one->bytes();
  return sum;
}

FrameTokensPtr FrameTokensBuilder::frame(const StackTop& top) {
  Key key;
  key.reserve(kUsualWords);
  if (grammar_.describe_portably(top.state, top.reg, key)) return portable_tokens(top, key);
  return described_tokens(top, Part::all, [&] { return compute(top); });
}

FrameTokensPtr FrameTokensBuilder::portable_tokens(const StackTop& top, const Key& key) {
  Vocabulary::SharedResults& cache = vocabulary_.shared_results();
  if (const auto cached = cache.find(key)) return std::static_pointer_cast<const FrameTokens>(*cached);
  auto made = std::make_shared<const FrameTokens>(compute(top));
  cache.put(key, made, made->bytes());
  return made;
}

/// Tokens below a node of the vocabulary's trie over which a frame goes on that a text enters there; null if the frame
/// only means something in its grammar.
FrameTokensPtr FrameTokensBuilder::entered(uint32_t node, const StackTop& top) const {
  struct Scratch {
    WalkScratch walk;
    TokenSet tokens;
    Footprint footprint;
  };
  thread_local Scratch scratch;
  thread_local Key key;
  if (!grammar_.describe_portably(top.state, top.reg, key)) return nullptr;
  key.push_back(uint64_t{node} << 32 | kEntered);
  Vocabulary::SharedResults& cache = vocabulary_.shared_results();
  if (const auto cached = cache.find(key)) return std::static_pointer_cast<const FrameTokens>(*cached);
  TrieWalk walk(grammar_, scratch.walk);
  FrameTokensBuilder builder(grammar_, walk, scratch.footprint, scratch.tokens);
  FrameTokens frame;
  builder.start({}, nullptr);
  walk.run_alone(vocabulary_.trie(), top, 0, node);
  builder.add_walked(vocabulary_.shared_trie(), frame);
  auto made = std::make_shared<const FrameTokens>(builder.finish(std::move(frame)));
  grammar_.counters().visited += walk.visited;
  cache.put(key, made, made->bytes());
  return made;
}

FrameTokensPtr FrameTokensBuilder::described_tokens(const StackTop& top, Part part,
                                                    const std::function<FrameTokens()>& make) {
  const uint32_t depth = top.parent_depth();
  const Rule* rule = grammar_.rule(top.state);
  Key key;
  key.reserve(kUsualWords);
  FrameTokensCache& cache = grammar_.frame_tokens();
  const auto describe = [&](Detail detail) {
    key.assign(1, static_cast<uint64_t>(part) << 1 | (detail == Detail::full));
    return grammar_.describe(top.state, top.reg, depth, detail, key);
  };
  const bool outlined = describe(Detail::outline);
  auto cached = outlined ? cache.find(key) : std::nullopt;
  const bool fully = cached && !*cached;
  if (fully) {
    footprint_.consult(rule, depth);
    cached = describe(Detail::full) ? cache.find(key) : std::nullopt;
  }
  if (cached) return *cached;

  const uint64_t asked = footprint_.asked;
  const bool others_indescribable = std::exchange(walk_.registers().indescribable, false);
  auto made = std::make_shared<const FrameTokens>(make());
  const bool indescribable =
      std::exchange(walk_.registers().indescribable, others_indescribable || walk_.indescribable());
  const bool consulted = footprint_.asked != asked;
  describable_ &= outlined;
  if (!outlined || indescribable) return made;
  if (consulted && !fully) cache.put(key, nullptr, 0);
  if (fully || !consulted || describe(Detail::full)) cache.put(key, made, made->bytes());
  return made;
}

FrameTokens FrameTokensBuilder::compute(const StackTop& top) {
  ++grammar_.counters().frame_tokens;
  const WildcardRegion text = region(top);
  if (starts_region(top, text)) return walk_region(top, {}, nullptr);
  const bool wide = text.exact || text.max_length >= TokenClass::kLengthSteps.front();
  const TokenClassPtr within = wide ? vocabulary_.token_class(text.characters) : nullptr;
  if (auto made = walk_suffix_groups(top, text, within)) return *std::move(made);
  if (auto made = walk_beside_usual(top, text, within)) return *std::move(made);
  return walk_region(top, text, within);
}

/// The wildcard region of a frame.
WildcardRegion FrameTokensBuilder::region(const StackTop& top) const {
  WildcardRegion text = grammar_.wildcard_region(top.state, top.reg);
  if (text.by_register) footprint_.consult(grammar_.rule(top.state), top.parent_depth());
  return text;
}

/// True if hardly any token stays in a region for longer than its texts, or none that does may follow.
bool FrameTokensBuilder::judges_most(const WildcardRegion& text) {
  return text.max_length >= kWildcardHorizon || text.exact;
}

/// True if the first character of a region leads to one of more characters, so that more tokens stay in that one.
bool FrameTokensBuilder::starts_region(const StackTop& top, const WildcardRegion& text) const {
  const Row& row = grammar_.row(top.state);
  const ByteSet& own = text.characters.ascii;
  if (row.usual == kDone || row.usual == top.state || !grammar_.shares_registers(top.state, row.usual)) return false;
  if (text.characters.beyond_ascii) return false;
  for (int byte = own.next(0); byte >= 0; byte = own.next(byte + 1)) {
    if (row.target(static_cast<uint8_t>(byte)) != row.usual) return false;
  }
  const WildcardRegion after = region({row.usual, top.reg, top.parent});
  return judges_most(after) && after.characters != text.characters && (own & ~after.characters.ascii).empty();
}

/// Tries of the tokens that do not stay in a wildcard region; of all tokens if there is none.
std::vector<TriePtr> FrameTokensBuilder::beyond(const WildcardRegion& text, const TokenClassPtr& within) const {
  if (!within) return {vocabulary_.shared_trie()};
  std::vector<TriePtr> tries{within->leaving(text.leaving, vocabulary_)};
  const bool bounded = text.max_length != WildcardRegion::kUnbounded;
  if (bounded && (!text.exact || text.max_length > kWildcardHorizon))
    tries.push_back(within->long_tokens(text.max_length, vocabulary_));
  return tries;
}

FrameTokens FrameTokensBuilder::walk_region(const StackTop& top, const WildcardRegion& text,
                                            const TokenClassPtr& within) {
  FrameTokens frame;
  start(text, within);
  if (!within) walk_.known = [this](uint32_t node, const StackTop& inner) { return entered(node, inner); };
  const auto walk = [&](const TriePtr& trie) {
    walk_.run_alone(*trie, top, top.parent_depth());
    add_walked(trie, frame);
  };
  std::vector<Begun> begun;
  walk_.defers = [&](const Trie& trie, uint32_t node, const StackTop& after, const StackTop*) {
    return begins(trie, node, after, begun);
  };
  for (const TriePtr& trie : beyond(text, within)) walk(trie);
  walk_.known = nullptr, walk_.defers = nullptr;
  for (const Begun& one : begun) {
    const TokenClassPtr after = vocabulary_.token_class(one.text.characters, one.first);
    after->add(add_lengths(one.text.max_length, 1), tokens_);
    for (const TriePtr& trie : beyond(one.text, after)) walk(trie);
  }
  return finish(std::move(frame));
}

/// True if a wildcard region begins after the first byte of strings, of which the trie has all. Adds it to `begun`.
bool FrameTokensBuilder::begins(const Trie& trie, uint32_t node, const StackTop& after,
                                std::vector<Begun>& begun) const {
  const Trie& all = vocabulary_.trie();
  const uint8_t byte = trie.byte[node];
  if (byte >= 0x80 || trie.size[node] != all.size[all.child(0, byte)]) return false;
  const WildcardRegion text = region(after);
  if (!judges_most(text)) return false;
  auto same = std::ranges::find(begun, text, &Begun::text);
  if (same == begun.end()) same = begun.insert(same, {text, {}});
  same->first.add(byte);
  return true;
}

/// Walks groups of tokens by their suffix after the wildcard region. If all texts of the region lead to one state,
/// tokens with equal suffixes are allowed together.
std::optional<FrameTokens> FrameTokensBuilder::walk_suffix_groups(const StackTop& top, const WildcardRegion& text,
                                                                  const TokenClassPtr& within) {
  const Row& row = grammar_.row(top.state);
  if (!within || text.max_length != WildcardRegion::kUnbounded || row.accepting) return std::nullopt;
  Registers& registers = walk_.registers();
  registers.depth = top.parent_depth();
  std::vector<std::string> exceptions;
  StackTop after = top;
  if (!grammar_.skip_wildcard(top.state, after.reg, registers, exceptions)) return std::nullopt;
  const TriePtr suffixes = within->suffix_groups(text.leaving & row.bytes, vocabulary_);
  const FrameTokensPtr groups = described_tokens(after, Part::groups, [&] {
    FrameTokens frame;
    start(text, within);
    walk_.run_alone(*suffixes, after, after.parent_depth());
    add_walked(suffixes, frame);
    return std::exchange(registers.indescribable, false) ? FrameTokens() : finish(std::move(frame));
  });
  if (!groups->allowed) return std::nullopt;
  if (exceptions.empty()) return *groups;
  const auto special = std::make_shared<const Trie>(vocabulary_.trie().starting_with(std::move(exceptions)));
  if (special->nodes() == 1) return *groups;
  walk_.run_alone(*special, top, top.parent_depth());
  std::vector<TokenId> tokens;
  special->append_subtree(0, tokens);
  return replace(*groups, std::move(tokens), special);
}

/// True if `text` lies within `other`, both are unbounded, and every byte by which a text leaves `other` or goes beyond
/// `text` is one that leaves `text`: a token that stays in `text` stays in both, and all others are among those that
/// leave `text`, or are allowed by neither.
bool FrameTokensBuilder::is_within(const WildcardRegion& text, const WildcardRegion& other) {
  const ByteSet &own = text.characters.ascii, &wider = other.characters.ascii;
  const bool endless = text.max_length == WildcardRegion::kUnbounded && other.max_length == WildcardRegion::kUnbounded;
  const bool alike = text.characters.beyond_ascii == other.characters.beyond_ascii &&
                     text.characters.excluded == other.characters.excluded;
  ByteSet beyond = other.leaving;
  beyond.add(wider & ~own);
  return endless && alike && (own & ~wider).empty() && (beyond & ~text.leaving).empty();
}

/// Walks only tokens over which the frame differs from one in the state that most bytes lead to. For example, a key
/// that may still become a known name shares most tokens with a key that cannot.
std::optional<FrameTokens> FrameTokensBuilder::walk_beside_usual(const StackTop& top, const WildcardRegion& text,
                                                                 const TokenClassPtr& within) {
  const StateId usual = grammar_.row(top.state).usual;
  if (usual == kDone || usual == top.state || !grammar_.shares_registers(top.state, usual)) return std::nullopt;
  if (grammar_.row(usual).usual != usual) return std::nullopt;
  // Frames with different regions are compared over the tokens that leave the narrower one, if it lies within the
  // other, else over all tokens, most of which stay in the other region.
  const WildcardRegion other = region({usual, top.reg, top.parent});
  if (other != text && !is_within(text, other) && (within || !judges_most(other))) return std::nullopt;
  FrameTokens made = *frame({usual, top.reg, top.parent});
  std::vector<TriePtr> tries = beyond(text, within);
  std::vector<Begun> begun;
  walk_.defers = [&, own = tries.size()](const Trie& trie, uint32_t node, const StackTop& after,
                                         const StackTop* beside) {
    return beside && tries.size() == own && region(*beside) == region(after) && begins(trie, node, after, begun);
  };
  for (size_t i = 0; i < tries.size(); ++i) {
    walk_.run_beside(*tries[i], top.state, usual, top.reg, top.parent_depth(), kInfinite);
    made = replace(made, walk_.differing, tries[i]);
    // Tokens that stay in a region after their first byte are allowed for both.
    for (const Begun& one : std::exchange(begun, {}))
      std::ranges::copy(beyond(one.text, vocabulary_.token_class(one.text.characters, one.first)),
                        std::back_inserter(tries));
  }
  walk_.defers = nullptr;
  return made;
}

/// Replaces what other results say about some tokens by what was just walked.
FrameTokens FrameTokensBuilder::replace(const FrameTokens& by, std::vector<TokenId> tokens, const TriePtr& trie) {
  vocabulary_.add_duplicates(tokens);
  FrameTokens frame;
  for (const ExitsPtr& exits : by.exits) {
    Exits without = *exits;
    without.except.insert(without.except.end(), tokens.begin(), tokens.end());
    frame.exits.push_back(std::make_shared<const Exits>(std::move(without)));
  }
  tokens_.start(vocabulary_.mask_words());
  tokens_.add(by.allowed);
  add_walked(trie, frame);
  // Most tokens are allowed as before, so that both results share their bits.
  erase_tokens(tokens, walk_.tokens, vocabulary_.mask_words());
  tokens_.remove(tokens);
  return finish(std::move(frame));
}

/// Begins a set with the tokens that stay in a wildcard region.
void FrameTokensBuilder::start(const WildcardRegion& text, const TokenClassPtr& within) {
  tokens_.start(vocabulary_.mask_words());
  if (within) within->add(text.max_length, tokens_);
}

/// Adds the tokens of the frames that the last walk entered. Values of one kind begin in the same ways in all grammars,
/// so that unions are cached.
void FrameTokensBuilder::add_entered() {
  if (walk_.entered.empty()) return;
  Key key{kUnion, kUnion};
  for (const TrieWalk::Entered& one : walk_.entered) key.push_back(one.tokens->allowed->id);
  Vocabulary::SharedResults& cache = vocabulary_.shared_results();
  auto cached = cache.find(key);
  if (!cached) {
    TokenSet all;
    all.start(vocabulary_.mask_words());
    for (const TrieWalk::Entered& one : walk_.entered) all.add(one.tokens->allowed);
    const MaskPtr mask = vocabulary_.masks().intern(all);
    cache.put(key, mask, mask->bytes);
    cached = mask;
  }
  tokens_.add(std::static_pointer_cast<const Mask>(*cached));
}

/// Adds the results of a walk over `trie`.
void FrameTokensBuilder::add_walked(const TriePtr& trie, FrameTokens& frame) {
  add_entered();
  for (const auto& [known, parents] : walk_.entered) {
    // Where the frame goes on, or is over as well.
    if (parents->accepting) frame.exits.insert(frame.exits.end(), known->exits.begin(), known->exits.end());
  }
  vocabulary_.add_duplicates(walk_.tokens);
  tokens_.add(walk_.tokens);
  Exits made{.trie = trie, .exits = {}, .except = {}};
  for (const uint32_t boundary : walk_.boundary_nodes) {
    if (boundary == 0) continue;  // the parents are asked separately
    const uint32_t end = boundary + trie->size[boundary];
    for (uint32_t node = boundary + 1; node < end; node += trie->size[node])
      made.exits.push_back({node, trie->byte[node]});
  }
  if (made.exits.empty()) return;
  made.exits = by_byte(made.exits);
  frame.exits.push_back(std::make_shared<const Exits>(std::move(made)));
}

FrameTokens FrameTokensBuilder::finish(FrameTokens frame) {
  frame.allowed = vocabulary_.masks().intern(tokens_);
  return frame;
}

}  // namespace constrain
