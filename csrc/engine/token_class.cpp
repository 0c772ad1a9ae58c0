#include "engine/token_class.h"

#include <algorithm>

#include "engine/bits.h"
#include "engine/utf8.h"
#include "engine/vocabulary.h"

namespace constrain {

/// Where a string of the trie has come to.
struct TokenClass::Place {
  Utf8State utf8 = Utf8State::boundary;
  uint32_t characters = 0;  ///< the one that has begun included
  char32_t bits = 0;        ///< of a character that is not of ASCII, as far as it was read

  /// False where the byte leaves the class.
  bool step(const CharacterClass& within, uint8_t byte, Place& to) const {
    const bool first = utf8 == Utf8State::boundary;
    if (first && byte < 0x80) {
      to = {Utf8State::boundary, characters + 1, 0};
      return within.ascii.has(byte);
    }
    to.utf8 = next_utf8(utf8, byte);
    to.characters = characters + first;
    if (!within.beyond_ascii || to.utf8 == Utf8State::malformed) return false;
    const int more = missing_bytes(to.utf8);
    to.bits = first ? static_cast<char32_t>(byte & (0x3F >> more)) : bits << 6 | (byte & 0x3F);
    return within.excluded.empty() || !within.excludes(scalar_range(to.bits, more));
  }
};

TokenClass::TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving) {
  const Trie& trie = vocabulary.trie();
  TrieBuilder leaving_tokens;
  std::vector<Place> places(size_t{vocabulary.longest_token()} + 1);
  for (uint32_t node = 1; node < trie.nodes();) {
    const size_t depth = trie.depth[node];
    const Place& from = places[depth - 1];
    if (from.step(characters, trie.byte[node], places[depth])) {
      if (trie.token[node] != kNoToken) keep(vocabulary, trie.token[node], places[depth].characters);
      ++node;
      continue;
    }
    const uint32_t end = node + trie.size[node];
    const bool near = from.characters <= kSteps.back() && leaving.has(trie.byte[node]);
    const bool far = from.characters > kSteps.front();
    for (; node < end && from.utf8 == Utf8State::boundary && (near || far); ++node) {
      const TokenId token = trie.token[node];
      if (token == kNoToken) continue;
      if (near) leaving_tokens.add(vocabulary.bytes(token), token);
      if (far) far_tokens_.push_back({from.characters, token});
    }
    node = end;
  }
  std::ranges::sort(within_, {}, [](const auto& one) { return one.first; });
  if (within_.size() > kMany) make_masks(vocabulary.mask_words());
  leaving_ = leaving_tokens.finish();
}

void TokenClass::keep(const Vocabulary& vocabulary, TokenId token, uint32_t characters) {
  if (characters > kSteps.front()) far_tokens_.push_back({characters, token});
  for (; token != kNoToken; token = vocabulary.next_duplicate(token)) within_.emplace_back(characters, token);
}

void TokenClass::make_masks(size_t words) {
  up_to_.emplace_back(words);
  counts_.push_back(0);
  auto next = within_.begin();
  for (uint64_t room = 1; next != within_.end() && room <= kDense; ++room) {
    up_to_.push_back(up_to_.back());
    for (; next != within_.end() && (next->first <= room); ++next) {
      bits::set(up_to_.back().data(), static_cast<size_t>(next->second));
    }
    counts_.push_back(static_cast<size_t>(next - within_.begin()));
  }
  // The last mask has them all where they end before, and is followed by the rest where they do not.
  if (next == within_.end()) return;
  up_to_.push_back(up_to_.back());
  for (; next != within_.end(); ++next) bits::set(up_to_.back().data(), static_cast<size_t>(next->second));
}

void TokenClass::add(uint64_t room, TokenSet& tokens) const {
  auto next = within_.begin();
  if (!up_to_.empty()) {
    const bool every = room >= within_.back().first;
    const size_t mask = every ? up_to_.size() - 1 : std::min<size_t>(room, counts_.size() - 1);
    bits::unite(tokens.words().data(), up_to_[mask].data(), up_to_[mask].size());
    if (every) return;
    next += static_cast<ptrdiff_t>(counts_[mask]);
  }
  for (; next != within_.end() && next->first <= room; ++next) tokens.add(next->second);
}

const Trie& TokenClass::far(uint64_t room, const Vocabulary& vocabulary) const {
  const auto after = std::upper_bound(kSteps.begin(), kSteps.end(), room);
  const auto step = static_cast<size_t>(after - kSteps.begin()) - 1;
  std::call_once(far_made_[step], [&] {
    TrieBuilder tokens;
    for (const Far& one : far_tokens_) {
      if (one.characters > kSteps[step]) tokens.add(vocabulary.bytes(one.token), one.token);
    }
    far_[step] = tokens.finish();
  });
  return far_[step];
}

size_t TokenClass::bytes() const {
  constexpr size_t kNode = 3 * sizeof(uint32_t) + sizeof(uint16_t) + sizeof(uint8_t);
  const size_t masks = up_to_.empty() ? 0 : up_to_.size() * up_to_[0].size() * sizeof(uint32_t);
  return masks + within_.size() * sizeof(within_[0]) + leaving_.nodes() * kNode +
         leaving_.jumps.size() * sizeof(Trie::Jumps) + far_tokens_.size() * 8 * kNode;
}

}  // namespace constrain
