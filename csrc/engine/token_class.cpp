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

TokenClass::TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving)
    : up_to_(kDense + 1, std::vector<uint32_t>(vocabulary.mask_words())), all_(vocabulary.mask_words()) {
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
  for (size_t n = 1; n < up_to_.size(); ++n) bits::unite(up_to_[n].data(), up_to_[n - 1].data(), all_.size());
  std::sort(long_ones_.begin(), long_ones_.end());
  leaving_ = leaving_tokens.finish();
}

void TokenClass::keep(const Vocabulary& vocabulary, TokenId token, uint32_t characters) {
  if (characters > kSteps.front()) far_tokens_.push_back({characters, token});
  for (TokenId id = token; id != kNoToken; id = vocabulary.next_duplicate(id)) {
    bits::set(all_.data(), static_cast<size_t>(id));
    if (characters > kDense) {
      long_ones_.emplace_back(characters, id);
    } else {
      bits::set(up_to_[characters].data(), static_cast<size_t>(id));
    }
  }
}

void TokenClass::add(uint64_t room, std::vector<uint32_t>& mask) const {
  const bool every = long_ones_.empty() ? room >= kDense : room >= long_ones_.back().first;
  const std::vector<uint32_t>& base = every ? all_ : up_to_[std::min(room, kDense)];
  bits::unite(mask.data(), base.data(), mask.size());
  if (every) return;
  for (const auto& [length, token] : long_ones_) {
    if (length > room) break;
    bits::set(mask.data(), static_cast<size_t>(token));
  }
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
  return (up_to_.size() + 1) * all_.size() * sizeof(uint32_t) + long_ones_.size() * sizeof(long_ones_[0]) +
         leaving_.nodes() * kNode + leaving_.jumps.size() * sizeof(Trie::Jumps) + far_tokens_.size() * 8 * kNode;
}

}  // namespace constrain
