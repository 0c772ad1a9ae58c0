#include "engine/token_class.h"

#include <algorithm>

#include "engine/bits.h"
#include "engine/utf8.h"
#include "engine/vocabulary.h"

namespace constrain {

namespace {

/// Sorts the strings of a trie into those within a class, those that leave it, and the rest.
class Sorter {
 public:
  Sorter(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving)
      : vocabulary_(vocabulary), trie_(vocabulary.trie()), characters_(characters), leaving_(leaving) {}

  TokenClass sort() {
    const size_t words = vocabulary_.mask_words();
    out_.up_to.assign(TokenClass::kDense + 1, std::vector<uint32_t>(words));
    out_.all.assign(words, 0);
    std::vector<Place> places(size_t{vocabulary_.longest_token()} + 1);
    for (uint32_t node = 1; node < trie_.nodes();) {
      const size_t depth = trie_.depth[node];
      if (!enter(places[depth - 1], trie_.byte[node], places[depth])) {
        leave(node, places[depth - 1]);
        node += trie_.size[node];
        continue;
      }
      if (trie_.token[node] != kNoToken) keep(trie_.token[node], places[depth].characters);
      ++node;
    }
    for (size_t n = 1; n < out_.up_to.size(); ++n) {
      bits::unite(out_.up_to[n].data(), out_.up_to[n - 1].data(), words);
    }
    std::sort(out_.long_ones.begin(), out_.long_ones.end());
    out_.leaving = leaving_tokens_.finish();
    out_.far = far_tokens_.finish();
    return std::move(out_);
  }

 private:
  struct Place {
    Utf8State utf8 = Utf8State::boundary;
    uint32_t characters = 0;  // the one that has begun included
  };

  bool enter(const Place& from, uint8_t byte, Place& to) const {
    const bool first = from.utf8 == Utf8State::boundary;
    if (first && byte < 0x80) {
      to = {Utf8State::boundary, from.characters + 1};
      return characters_.ascii.has(byte);
    }
    to = {next_utf8(from.utf8, byte), from.characters + first};
    return characters_.beyond_ascii && to.utf8 != Utf8State::malformed;
  }

  void keep(TokenId token, uint32_t characters) {
    if (characters > FreeTextFinder::kHorizon) far_tokens_.add(vocabulary_.bytes(token), token);
    for (TokenId id = token; id != kNoToken; id = vocabulary_.next_duplicate(id)) {
      bits::set(out_.all.data(), static_cast<size_t>(id));
      if (characters > TokenClass::kDense) {
        out_.long_ones.emplace_back(characters, id);
      } else {
        bits::set(out_.up_to[characters].data(), static_cast<size_t>(id));
      }
    }
  }

  void leave(uint32_t node, const Place& from) {
    if (from.utf8 != Utf8State::boundary) return;
    const bool far = from.characters > FreeTextFinder::kHorizon;
    if (!far && !leaving_.has(trie_.byte[node])) return;
    TrieBuilder& tokens = far ? far_tokens_ : leaving_tokens_;
    for (uint32_t at = node; at < node + trie_.size[node]; ++at) {
      if (trie_.token[at] != kNoToken) tokens.add(vocabulary_.bytes(trie_.token[at]), trie_.token[at]);
    }
  }

  const Vocabulary& vocabulary_;
  const Trie& trie_;
  const CharacterClass& characters_;
  const ByteSet& leaving_;
  TokenClass out_;
  TrieBuilder leaving_tokens_, far_tokens_;
};

}  // namespace

void TokenClass::add(uint64_t room, std::vector<uint32_t>& mask) const {
  const bool every = long_ones.empty() ? room >= kDense : room >= long_ones.back().first;
  const std::vector<uint32_t>& base = every ? all : up_to[std::min(room, kDense)];
  bits::unite(mask.data(), base.data(), mask.size());
  if (every) return;
  for (const auto& [length, token] : long_ones) {
    if (length > room) break;
    bits::set(mask.data(), static_cast<size_t>(token));
  }
}

size_t TokenClass::bytes() const {
  const size_t node = sizeof(uint32_t) + sizeof(uint8_t) + sizeof(uint16_t) + sizeof(TokenId) + sizeof(uint32_t);
  return (up_to.size() + 1) * all.size() * sizeof(uint32_t) + long_ones.size() * sizeof(long_ones[0]) +
         (leaving.nodes() + far.nodes()) * node + (leaving.jumps.size() + far.jumps.size()) * sizeof(Trie::Jumps);
}

TokenClass make_token_class(const Vocabulary& vocabulary, const CharacterClass& characters, const ByteSet& leaving) {
  return Sorter(vocabulary, characters, leaving).sort();
}

}  // namespace constrain
