#include "engine/masks/inner_builder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

namespace constrain {

namespace {

/// Fewer bytes on which two frames do the same are not looked up, but walked.
constexpr int kMinAgreed = 16;

/// Words that descriptions seldom exceed.
constexpr size_t kUsualWords = 24;

}  // namespace

InnerPtr InnerBuilder::inner(const Head& head) {
  Key key;
  key.reserve(kUsualWords);
  return grammar_.describe_portably(head.state, head.reg, key) ? portable_inner(head, key) : described_inner(head);
}

InnerPtr InnerBuilder::portable_inner(const Head& head, const Key& key) {
  Vocabulary::SharedResults& cache = grammar_.vocabulary().shared_results();
  if (const auto known = cache.find(key)) return std::static_pointer_cast<const Inner>(*known);
  auto made = std::make_shared<const Inner>(walk_alone(head));
  cache.keep(key, made, made->bytes());
  return made;
}

InnerPtr InnerBuilder::described_inner(const Head& head) {
  const uint32_t depth = head.depth_below();
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

Inner InnerBuilder::walk_alone(const Head& head) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  ++grammar_.counters().inners;
  Inner inner;
  std::vector<TriePtr> tries;
  const WildcardRegion text = grammar_.wildcard_region(head.state, head.reg);
  walk_.tokens.clear();
  if (text.exact || text.room >= TokenClass::kSteps.front()) {
    inner.within = vocabulary.token_class(text.characters);
    inner.room = text.room;
    if (!walk_tails(head, text, inner)) {
      find_like(head, text, inner);
      tries.push_back(inner.within->leaving(text.leaving, vocabulary));
      const bool far = text.room != WildcardRegion::kUnbounded && (!text.exact || text.room > kWildcardHorizon);
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
bool InnerBuilder::walk_tails(const Head& head, const WildcardRegion& text, Inner& inner) {
  const Row& row = grammar_.row(head.state);
  if (text.room != WildcardRegion::kUnbounded || row.accepting) return false;
  Registers& registers = walk_.registers();
  registers.depth = head.depth_below();
  std::vector<std::string> exceptions;
  Head after = head;
  if (!grammar_.skip_wildcard(head.state, after.reg, registers, exceptions)) return false;

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
void InnerBuilder::drop_tokens(const Trie& trie) {
  std::vector<TokenId> dropped;
  std::ranges::copy_if(trie.token, std::back_inserter(dropped), [](TokenId token) { return token != kNoToken; });
  std::ranges::sort(dropped);
  std::erase_if(walk_.tokens, [&](TokenId token) { return std::ranges::binary_search(dropped, token); });
}

/// Makes the runs anew, for tokens that were found in another order. Exits have no order then.
void InnerBuilder::sort_by_first_byte(Inner& inner) {
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

void InnerBuilder::walk_alone(const TriePtr& trie, const Head& head, const ByteSet& first, Inner& inner) {
  auto& runs = walk_.runs;
  runs.clear();
  walk_.exits.clear();
  auto tokens = static_cast<uint32_t>(walk_.tokens.size());
  walk_.run_alone(*trie, head.state, head.reg, head.depth_below(), first);
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
void InnerBuilder::find_like(const Head& head, const WildcardRegion& text, Inner& inner) {
  const Row& row = grammar_.row(head.state);
  const StateId usual = row.usual;
  if (usual == kDone || usual == head.state || !grammar_.shares_registers(head.state, usual)) return;
  const Row& other = grammar_.row(usual);
  if (other.usual != usual || !(grammar_.wildcard_region(usual, head.reg) == text)) return;
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
