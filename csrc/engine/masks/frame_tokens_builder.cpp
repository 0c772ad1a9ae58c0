#include "engine/masks/frame_tokens_builder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

namespace constrain {

namespace {

/// Fewer shared bytes are walked again, not shared.
constexpr int kMinAgreed = 16;

/// Usual size of cache keys, in words.
constexpr size_t kUsualWords = 24;

}  // namespace

FrameTokensPtr FrameTokensBuilder::frame(const StackTop& top) {
  Key key;
  key.reserve(kUsualWords);
  return grammar_.describe_portably(top.state, top.reg, key) ? portable_tokens(top, key) : described_tokens(top);
}

FrameTokensPtr FrameTokensBuilder::portable_tokens(const StackTop& top, const Key& key) {
  Vocabulary::SharedResults& cache = grammar_.vocabulary().shared_results();
  if (const auto cached = cache.find(key)) return std::static_pointer_cast<const FrameTokens>(*cached);
  auto made = std::make_shared<const FrameTokens>(walk_alone(top));
  cache.put(key, made, made->bytes());
  return made;
}

FrameTokensPtr FrameTokensBuilder::described_tokens(const StackTop& top) {
  const uint32_t depth = top.parent_depth();
  const Rule* rule = grammar_.rule(top.state);
  Key key;
  key.reserve(kUsualWords);
  FrameTokensCache& cache = grammar_.frame_tokens();
  const auto describe = [&](Detail detail) {
    key.clear();
    if (!grammar_.describe(top.state, top.reg, depth, detail, key)) return false;
    if (detail == Detail::full) key.push_back(0);  // tells it from an outline
    return true;
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
  auto made = std::make_shared<const FrameTokens>(walk_alone(top));
  const bool indescribable =
      std::exchange(walk_.registers().indescribable, others_indescribable || walk_.indescribable());
  const bool consulted = footprint_.asked != asked;
  describable_ &= outlined;
  if (!outlined || indescribable) return made;
  if (consulted && !fully) cache.put(key, nullptr, 0);
  if (fully || !consulted || describe(Detail::full)) cache.put(key, made, made->bytes());
  return made;
}

FrameTokens FrameTokensBuilder::walk_alone(const StackTop& top) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  ++grammar_.counters().frame_tokens;
  FrameTokens frame;
  std::vector<TriePtr> tries;
  const WildcardRegion text = grammar_.wildcard_region(top.state, top.reg);
  walk_.tokens.clear();
  if (text.exact || text.max_length >= TokenClass::kLengthSteps.front()) {
    frame.token_class = vocabulary.token_class(text.characters);
    frame.max_length = text.max_length;
    if (!walk_suffix_groups(top, text, frame)) {
      find_similar(top, text, frame);
      tries.push_back(frame.token_class->leaving(text.leaving, vocabulary));
      const bool far =
          text.max_length != WildcardRegion::kUnbounded && (!text.exact || text.max_length > kWildcardHorizon);
      if (far) tries.push_back(frame.token_class->long_tokens(text.max_length, vocabulary));
    }
  } else {
    find_similar(top, text, frame);
    tries.push_back(vocabulary.shared_trie());
  }
  for (const TriePtr& trie : tries) walk_alone(trie, top, ~frame.agreed, frame);
  frame.tokens = walk_.tokens;
  if (frame.tokens.size() <= vocabulary.mask_words()) return frame;

  auto many = std::make_shared<TokenBits>(vocabulary.mask_words());
  for (TokenId token : frame.tokens) {
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) many->add(token);
  }
  frame.many = std::move(many);
  frame.tokens = {}, frame.runs = {};
  frame.by_byte = false;
  return frame;
}

/// Walks groups of tokens by their suffix after the wildcard region. If all texts of the region lead to one state,
/// tokens with equal suffixes are allowed together.
bool FrameTokensBuilder::walk_suffix_groups(const StackTop& top, const WildcardRegion& text, FrameTokens& frame) {
  const Row& row = grammar_.row(top.state);
  if (text.max_length != WildcardRegion::kUnbounded || row.accepting) return false;
  Registers& registers = walk_.registers();
  registers.depth = top.parent_depth();
  std::vector<std::string> exceptions;
  StackTop after = top;
  if (!grammar_.skip_wildcard(top.state, after.reg, registers, exceptions)) return false;

  const Vocabulary& vocabulary = grammar_.vocabulary();
  const ByteSet leaving = text.leaving & row.bytes;
  const TriePtr suffixes = frame.token_class->suffix_groups(leaving, vocabulary);
  if (!suffixes) return false;
  const bool indescribable = std::exchange(registers.indescribable, false);
  walk_alone(suffixes, after, ByteSet::all(), frame);
  const bool alike = !std::exchange(registers.indescribable, indescribable);
  frame.runs.clear();
  if (!alike) {
    walk_.tokens.clear(), frame.boundary_nodes.clear();
    return false;
  }
  if (!exceptions.empty()) {
    const auto special = std::make_shared<const Trie>(vocabulary.trie().starting_with(std::move(exceptions)));
    if (special->nodes() > 1) {
      drop_tokens(*special);
      walk_alone(special, top, ByteSet::all(), frame);
    }
  }
  sort_by_first_byte(frame);
  return true;
}

/// Drops the tokens of a trie from the results so far.
void FrameTokensBuilder::drop_tokens(const Trie& trie) {
  std::vector<TokenId> dropped;
  std::ranges::copy_if(trie.token, std::back_inserter(dropped), [](TokenId token) { return token != kNoToken; });
  std::ranges::sort(dropped);
  std::erase_if(walk_.tokens, [&](TokenId token) { return std::ranges::binary_search(dropped, token); });
}

/// Rebuilds the runs for tokens that were found out of byte order. Boundary nodes have no runs then.
void FrameTokensBuilder::sort_by_first_byte(FrameTokens& frame) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  frame.runs.clear();
  frame.by_byte = frame.boundary_nodes.empty();
  if (!frame.by_byte) return;
  std::array<uint32_t, 256> place{};
  for (const TokenId token : walk_.tokens) ++place[vocabulary.first_byte(token)];
  uint32_t end = 0;
  for (size_t byte = 0; byte < place.size(); ++byte) {
    const uint32_t begin = end;
    end += std::exchange(place[byte], begin);
    if (end > begin) frame.runs.push_back({static_cast<uint8_t>(byte), begin, end, 0, 0});
  }
  std::vector<TokenId> sorted(walk_.tokens.size());
  for (const TokenId token : walk_.tokens) sorted[place[vocabulary.first_byte(token)]++] = token;
  walk_.tokens.swap(sorted);
}

void FrameTokensBuilder::walk_alone(const TriePtr& trie, const StackTop& top, const ByteSet& first,
                                    FrameTokens& frame) {
  auto& runs = walk_.runs;
  runs.clear();
  walk_.boundary_nodes.clear();
  auto tokens = static_cast<uint32_t>(walk_.tokens.size());
  walk_.run_alone(*trie, top.state, top.reg, top.parent_depth(), first);
  // A boundary at the root belongs to the parents, which are asked separately.
  size_t next = !walk_.boundary_nodes.empty() && walk_.boundary_nodes.front() == 0 ? 1 : 0;
  for (const TrieWalk::Run& run : runs) {
    const auto boundary_nodes = static_cast<uint32_t>(frame.boundary_nodes.size());
    for (; next < run.boundary_end; ++next) frame.boundary_nodes.push_back({trie, walk_.boundary_nodes[next]});
    const auto tokens_end = static_cast<uint32_t>(run.tokens_end),
               boundary_end = static_cast<uint32_t>(frame.boundary_nodes.size());
    if (tokens_end > tokens || boundary_end > boundary_nodes)
      frame.runs.push_back({run.byte, tokens, tokens_end, boundary_nodes, boundary_end});
    tokens = tokens_end;
  }
}

/// Shares the tokens of the state that most bytes of `top` lead to, for the bytes on which both states agree. For
/// example, a key that may still become a known name shares most tokens with a key that cannot.
void FrameTokensBuilder::find_similar(const StackTop& top, const WildcardRegion& text, FrameTokens& frame) {
  const Row& row = grammar_.row(top.state);
  const StateId usual = row.usual;
  if (usual == kDone || usual == top.state || !grammar_.shares_registers(top.state, usual)) return;
  const Row& other = grammar_.row(usual);
  if (other.usual != usual || !(grammar_.wildcard_region(usual, top.reg) == text)) return;
  ByteSet agreed;
  int count = 0;
  for (int byte = row.bytes.next(0), end; byte >= 0; byte = row.bytes.next(end)) {
    // Handles bytes with equal actions as one range.
    const auto same = [&](int at) {
      return row.action[at] == row.action[byte] && other.action[at] == other.action[byte];
    };
    for (end = byte + 1; end < 256 && same(end);) ++end;
    if (!row.agrees(other, static_cast<uint8_t>(byte))) continue;
    count += end - byte;
    while (byte < end) agreed.add(static_cast<uint8_t>(byte++));
  }
  if (count < kMinAgreed) return;
  FrameTokensPtr similar = this->frame({usual, top.reg, top.parent});
  walk_.tokens.clear();
  if (!similar->by_byte) return;
  frame.similar = std::move(similar);
  frame.agreed = agreed;
}

}  // namespace constrain
