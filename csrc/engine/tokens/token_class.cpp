#include "engine/tokens/token_class.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/lengths.h"
#include "engine/text/utf8.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

/// Where a string of the trie has come to.
struct TokenClass::Place {
  Utf8State utf8 = Utf8State::boundary;
  uint32_t characters = 0;  ///< the one that has begun included
  uint8_t lead = 0;         ///< first byte of the last one
  char32_t bits = 0;        ///< of a character that is not of ASCII, as far as it was read

  /// False where the byte leaves the class.
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
  sort_within();
  count_ = within_.size();
  if (within_.size() > kMany) make_bits(vocabulary.mask_words());
}

void TokenClass::walk(const Vocabulary& vocabulary, const CharacterClass& characters) {
  const Trie& trie = vocabulary.trie();
  std::vector<Place> places(size_t{vocabulary.longest_token()} + 1);
  for (uint32_t node = 1; node < trie.nodes();) {
    const size_t depth = trie.depth[node];
    const Place& from = places[depth - 1];
    Place& place = places[depth];
    if (from.step(characters, trie.byte[node], place)) {
      TokenId token = trie.token[node];
      if (token != kNoToken && place.characters > kSteps.front()) far_.push_back({node, place.characters});
      for (; token != kNoToken; token = vocabulary.next_duplicate(token)) within_.push_back({place.characters, token});
      ++node;
      continue;
    }
    const uint32_t end = node + trie.size[node];
    const bool inside = from.utf8 != Utf8State::boundary;
    const uint32_t characters = from.characters - inside;
    leaving_.push_back({node, characters, inside ? from.lead : trie.byte[node], inside});
    for (uint32_t below = node; characters > kSteps.front() && below < end; ++below) {
      if (trie.token[below] != kNoToken) far_.push_back({below, characters});
    }
    node = end;
  }
}

void TokenClass::sort_within() {
  // Lengths are few, so that counting them is faster than comparing.
  std::vector<size_t> starts;
  for (const Within& one : within_) {
    starts.resize(std::max<size_t>(starts.size(), one.characters + 2));
    ++starts[one.characters + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<Within> sorted(within_.size());
  for (const Within& one : within_) sorted[starts[one.characters]++] = one;
  within_ = std::move(sorted);
}

void TokenClass::make_bits(size_t words) {
  TokenBits bits(words);
  auto next = within_.begin();
  const auto take = [&](uint64_t room) {
    for (; next != within_.end() && next->characters <= room; ++next) bits.add(next->token);
    return std::make_shared<const TokenBits>(bits);
  };
  for (uint64_t room = 0; room <= kDense && (room == 0 || next != within_.end()); ++room) up_to_.push_back(take(room));
  const auto rest = next;
  all_ = take(kInfinite);
  within_ = {rest, within_.end()};
}

void TokenClass::add(uint64_t room, TokenSet& tokens) const {
  if (!up_to_.empty()) {
    const bool every = within_.empty() ? room + 1 >= up_to_.size() : room >= within_.back().characters;
    tokens.add(every ? all_ : up_to_[std::min<size_t>(room, up_to_.size() - 1)]);
    if (every) return;
  }
  for (const Within& one : within_) {
    if (one.characters > room) return;
    tokens.add(one.token);
  }
}

TriePtr TokenClass::leaving(const ByteSet& bytes, const Vocabulary& vocabulary) const {
  if (const auto known = leaving_tries_.find(bytes.words)) return *known;
  const Trie& trie = vocabulary.trie();
  std::vector<uint32_t> nodes;
  for (const Leaving& one : leaving_) {
    if (bytes.has(one.byte)) nodes.push_back(one.node);
  }
  auto made = std::make_shared<const Trie>(trie.select_subtrees(nodes));
  leaving_tries_.keep(bytes.words, made, made->bytes());
  return made;
}

TriePtr TokenClass::tails(const ByteSet& bytes, const Vocabulary& vocabulary) const {
  if (const auto known = tails_.find(bytes.words)) return *known;
  std::map<std::string, std::vector<TokenId>> groups;
  size_t nodes = 0;
  for (const Leaving& one : leaving_) {
    // Where all texts lead back to one state there is no way on with a character outside the class.
    if (!bytes.has(one.byte) || one.by_character) continue;
    nodes += vocabulary.trie().size[one.node];
    if (nodes > kManyLeaving) {
      tails_.keep(bytes.words, nullptr, 0);
      return nullptr;
    }
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
  tails_.keep(bytes.words, shared, shared->bytes());
  return shared;
}

TriePtr TokenClass::far(uint64_t room, const Vocabulary& vocabulary) const {
  const auto after = std::upper_bound(kSteps.begin(), kSteps.end(), room);
  const auto step = static_cast<size_t>(after - kSteps.begin()) - 1;
  std::call_once(far_made_[step], [&] {
    std::vector<uint32_t> nodes;
    for (const Far& one : far_) {
      if (one.characters > kSteps[step]) nodes.push_back(one.node);
    }
    far_tries_[step] = std::make_shared<const Trie>(vocabulary.trie().select(nodes));
  });
  return far_tries_[step];
}

size_t TokenClass::bytes() const {
  constexpr size_t kTries = size_t{2} << 20;  // about what is made of them later
  const size_t masks = all_ ? (up_to_.size() + 1) * all_->bytes() : 0;
  return masks + within_.size() * sizeof(Within) + leaving_.size() * sizeof(Leaving) + far_.size() * sizeof(Far) +
         kTries;
}

}  // namespace constrain
