#include "engine/tokens/token_class.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/bits.h"
#include "engine/base/lengths.h"
#include "engine/text/utf8.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

namespace {

/// How the strings of a trie fall into characters, whatever class is asked about.
class TrieCharacters {
 public:
  // Kinds of nodes: an ASCII character itself; a byte of another character; a byte that begins none; or, where a byte
  // does not continue a character, the first byte of that, which is greater.
  static constexpr uint8_t kPart = 0x80, kStray = 0x81;

  explicit TrieCharacters(const Trie& trie) : count_(trie.nodes()), kind_(trie.nodes()) {
    std::vector<Place> places(size_t{*std::ranges::max_element(trie.depth)} + 1);
    for (uint32_t node = 1; node < trie.nodes(); ++node) {
      Place& place = places[trie.depth[node]];
      kind_[node] = step(places[trie.depth[node] - 1], trie.byte[node], place);
      count_[node] = place.characters;
    }
  }

  static std::shared_ptr<const TrieCharacters> of(const Vocabulary& vocabulary) {
    constexpr uint64_t kKey[] = {~uint64_t{0}};  // other keys have several words
    if (const auto cached = vocabulary.shared_results().find(kKey))
      return std::static_pointer_cast<const TrieCharacters>(*cached);
    auto made = std::make_shared<const TrieCharacters>(vocabulary.trie());
    vocabulary.shared_results().put(kKey, made, made->kind_.size() * (sizeof(uint16_t) + 1));
    return made;
  }

  uint8_t kind(uint32_t node) const { return kind_[node]; }

  /// Characters of a node's string, each counted from its first byte on.
  uint32_t count(uint32_t node) const { return count_[node]; }

 private:
  struct Place {
    Utf8State utf8 = Utf8State::boundary;
    uint8_t lead = 0;
    uint16_t characters = 0;
  };

  static uint8_t step(const Place& from, uint8_t byte, Place& to) {
    const bool first = from.utf8 == Utf8State::boundary;
    to = {next_utf8(from.utf8, byte), first ? byte : from.lead, static_cast<uint16_t>(from.characters + first)};
    if (to.utf8 == Utf8State::malformed) return first ? kStray : from.lead;
    return first && byte < 0x80 ? byte : kPart;
  }

  std::vector<uint16_t> count_;
  std::vector<uint8_t> kind_;
};

}  // namespace

/// Progress of a trie string through the characters of a class.
struct TokenClass::Place {
  Utf8State utf8 = Utf8State::boundary;
  uint32_t characters = 0;  ///< counts a character from its first byte on
  uint8_t lead = 0;         ///< first byte of the last character
  char32_t bits = 0;        ///< code point bits so far, beyond ASCII

  /// Advances by a byte; false if it leaves the class.
  bool step(const CharacterClass& within, uint8_t byte, Place& to) const {
    const bool first = utf8 == Utf8State::boundary;
    if (first && byte < 0x80) {
      to = {Utf8State::boundary, characters + 1, byte, 0};
      return within.ascii.has(byte);
    }
    to.utf8 = next_utf8(utf8, byte);
    to.characters = characters + first;
    to.lead = first ? byte : lead;
    if (!within.beyond_ascii || to.utf8 == Utf8State::malformed) return false;
    const int more = missing_bytes(to.utf8);
    to.bits = first ? static_cast<char32_t>(byte & (0x3F >> more)) : bits << 6 | (byte & 0x3F);
    return within.excluded.empty() || !within.excludes(scalar_range(to.bits, more));
  }
};

TokenClass::TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters) {
  walk(vocabulary, characters);
  sort_members();
  count_ = members_.size();
  if (members_.size() > kMany) make_bits(vocabulary.mask_words());
}

void TokenClass::walk(const Vocabulary& vocabulary, const CharacterClass& characters) {
  const Trie& trie = vocabulary.trie();
  const auto strings = TrieCharacters::of(vocabulary);
  ByteSet staying = characters.ascii & ByteSet::range(0, 0x7F);
  if (characters.beyond_ascii) staying.add(TrieCharacters::kPart);
  const bool picky = !characters.excluded.empty();
  std::vector<Place> places(size_t{vocabulary.longest_token()} + 1);
  members_.resize(vocabulary.size() + 1);
  size_t members = 0;
  for (uint32_t node = 1; node < trie.nodes();) {
    const uint8_t kind = strings->kind(node);
    const Place* from = picky ? &places[trie.depth[node] - 1] : nullptr;
    if (from ? from->step(characters, trie.byte[node], places[trie.depth[node]]) : staying.has(kind)) {
      // Without branches: about every other node has a token. The next one overwrites what is none.
      members_[members] = {strings->count(node), trie.token[node]};
      members += trie.token[node] != kNoToken;
      if (strings->count(node) > kLengthSteps.front() && trie.token[node] != kNoToken)
        long_.push_back({node, strings->count(node)});
      ++node;
      continue;
    }
    const uint32_t end = node + trie.size[node], before = strings->count(node) - 1;
    const bool inside = from ? from->utf8 != Utf8State::boundary : kind > TrieCharacters::kStray;
    leaving_.push_back({node, before, !inside ? trie.byte[node] : from ? from->lead : kind, inside});
    for (uint32_t below = node; before > kLengthSteps.front() && below < end; ++below) {
      if (trie.token[below] != kNoToken) long_.push_back({below, before});
    }
    node = end;
  }
  members_.resize(members);
  if (!vocabulary.has_duplicates()) return;
  for (size_t i = 0; i < members; ++i) {
    TokenId token = members_[i].token;
    while ((token = vocabulary.next_duplicate(token)) != kNoToken) members_.push_back({members_[i].characters, token});
  }
}

void TokenClass::sort_members() {
  // Counting sort: there are few lengths.
  std::vector<size_t> starts;
  for (const Member& one : members_) {
    if (starts.size() < one.characters + 2) starts.resize(one.characters + 2);
    ++starts[one.characters + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<Member> sorted(members_.size());
  for (const Member& one : members_) sorted[starts[one.characters]++] = one;
  members_ = std::move(sorted);
}

void TokenClass::make_bits(size_t words) {
  TokenBits bits(words);
  auto next = members_.begin();
  const auto take = [&](uint64_t max_length) {
    for (; next != members_.end() && next->characters <= max_length; ++next) bits.add(next->token);
    return std::make_shared<const TokenBits>(bits);
  };
  for (uint64_t max_length = 0; max_length <= kDense && (max_length == 0 || next != members_.end()); ++max_length)
    up_to_length_.push_back(take(max_length));
  const auto rest = next;
  all_ = take(kInfinite);
  members_ = {rest, members_.end()};
}

void TokenClass::add(uint64_t max_length, TokenSet& tokens) const {
  if (!up_to_length_.empty()) {
    const bool every =
        members_.empty() ? max_length + 1 >= up_to_length_.size() : max_length >= members_.back().characters;
    tokens.add(every ? all_ : up_to_length_[std::min<size_t>(max_length, up_to_length_.size() - 1)]);
    if (every) return;
  }
  for (const Member& one : members_) {
    if (one.characters > max_length) return;
    tokens.add(one.token);
  }
}

void TokenClass::remove(uint64_t max_length, TokenSet& tokens) const {
  std::vector<TokenId> list;
  if (!up_to_length_.empty()) {
    const TokenBits& bits = *up_to_length_[std::min<size_t>(max_length, up_to_length_.size() - 1)];
    bits::for_each(
        bits.words.size(), [&](size_t i) { return bits.words[i]; },
        [&](size_t token) { list.push_back(static_cast<TokenId>(token)); });
  }
  for (const Member& one : members_) {
    if (one.characters <= max_length) list.push_back(one.token);
  }
  tokens.remove(list);
}

TriePtr TokenClass::leaving(const ByteSet& bytes, const Vocabulary& vocabulary) const {
  if (const auto cached = leaving_tries_.find(bytes.words)) return *cached;
  const Trie& trie = vocabulary.trie();
  std::vector<uint32_t> nodes;
  for (const Leaving& one : leaving_) {
    if (bytes.has(one.byte)) nodes.push_back(one.node);
  }
  auto made = std::make_shared<const Trie>(trie.select_subtrees(nodes));
  leaving_tries_.put(bytes.words, made, made->bytes());
  return made;
}

TriePtr TokenClass::suffix_groups(const ByteSet& bytes, const Vocabulary& vocabulary) const {
  if (const auto cached = suffix_groups_.find(bytes.words)) return *cached;
  std::map<std::string, std::vector<TokenId>> groups;
  for (const Leaving& one : leaving_) {
    // These groups serve regions whose texts all lead to one state, which refuses excluded characters.
    if (!bytes.has(one.byte) || one.by_character) continue;
    vocabulary.trie().for_each_token(one.node, {static_cast<char>(one.byte)},
                                     [&](const std::string& tail, TokenId token) { groups[tail].push_back(token); });
  }
  TrieBuilder builder;
  std::vector<std::vector<TokenId>> tokens;
  for (auto& [tail, group] : groups) {
    builder.add(tail, static_cast<TokenId>(tokens.size()));
    tokens.push_back(std::move(group));
  }
  Trie made = builder.finish();
  made.groups = std::move(tokens);
  const auto shared = std::make_shared<const Trie>(std::move(made));
  suffix_groups_.put(bytes.words, shared, shared->bytes());
  return shared;
}

TriePtr TokenClass::long_tokens(uint64_t max_length, const Vocabulary& vocabulary) const {
  const auto after = std::upper_bound(kLengthSteps.begin(), kLengthSteps.end(), max_length);
  const auto step = static_cast<size_t>(after - kLengthSteps.begin()) - 1;
  std::call_once(long_made_[step], [&] {
    std::vector<uint32_t> nodes;
    for (const LongToken& one : long_) {
      if (one.characters > kLengthSteps[step]) nodes.push_back(one.node);
    }
    long_tries_[step] = std::make_shared<const Trie>(vocabulary.trie().select(nodes));
  });
  return long_tries_[step];
}

size_t TokenClass::bytes() const {
  constexpr size_t kTries = size_t{2} << 20;  // estimate of the tries that are made later
  const size_t masks = all_ ? (up_to_length_.size() + 1) * all_->bytes() : 0;
  return masks + members_.size() * sizeof(Member) + leaving_.size() * sizeof(Leaving) +
         long_.size() * sizeof(LongToken) + kTries;
}

}  // namespace constrain
