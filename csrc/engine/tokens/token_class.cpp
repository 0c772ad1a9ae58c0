#include "engine/tokens/token_class.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/bits.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

TokenClass::TokenClass(const Vocabulary& vocabulary, const CharacterClass& characters, std::vector<uint32_t> roots)
    : characters_(vocabulary.characters()),
      roots_(std::move(roots)),
      leaving_(characters_->leaving(characters, roots_)) {
  std::vector<uint32_t> words(vocabulary.mask_words());
  const std::vector<uint32_t>& size = vocabulary.trie().size;
  uint32_t from = 0;
  const auto add_until = [&](uint32_t node) {
    for (const TokenId token : characters_->tokens(from, node)) bits::set(words.data(), static_cast<size_t>(token));
  };
  auto leaving = leaving_.begin();
  for (const uint32_t root : roots_) {
    const uint32_t end = root + size[root];
    for (from = root; leaving != leaving_.end() && leaving->node < end; ++leaving) {
      add_until(leaving->node);
      from = leaving->node + size[leaving->node];
    }
    add_until(end);
  }
  all_ = std::make_shared<const TokenBits>(std::move(words));
}

/// The tokens of at most `length` characters that stay.
const TokenBitsPtr& TokenClass::up_to(size_t length) const {
  std::call_once(up_to_made_[length], [&] {
    std::vector<uint32_t> words = all_->words;
    const std::span<const uint32_t> within = characters_->up_to(length);
    for (size_t i = 0; i < words.size(); ++i) words[i] &= within[i];
    up_to_[length] = std::make_shared<const TokenBits>(std::move(words));
  });
  return up_to_[length];
}

/// Those that are not short, up to `max_length`.
std::vector<TokenId> TokenClass::longer(uint64_t max_length) const {
  std::vector<TokenId> found;
  for (const auto& [characters, token] : characters_->long_tokens()) {
    if (characters > max_length) break;
    if (all_->has(token)) found.push_back(token);
  }
  return found;
}

void TokenClass::add(uint64_t max_length, TokenSet& tokens) const {
  const auto others = characters_->long_tokens();
  if (max_length >= (others.empty() ? TokenCharacters::kShort : others.back().first)) return tokens.add(all_);
  tokens.add(up_to(std::min<size_t>(max_length, TokenCharacters::kShort)));
  tokens.add(longer(max_length));
}

void TokenClass::remove(uint64_t max_length, TokenSet& tokens) const {
  std::vector<TokenId> list = longer(max_length);
  const TokenBits& shorter = *up_to(std::min<size_t>(max_length, TokenCharacters::kShort));
  const auto word = [&](size_t i) { return shorter.words[i]; };
  bits::for_each(shorter.words.size(), word, [&](size_t token) { list.push_back(static_cast<TokenId>(token)); });
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
  std::vector<uint32_t> roots;
  for (const Leaving& one : leaving_) {
    // These groups serve regions whose texts all lead to one state, which refuses excluded characters.
    if (bytes.has(one.byte) && !one.by_character) roots.push_back(one.node);
  }
  auto made = std::make_shared<const Trie>(vocabulary.trie().group_subtrees(std::move(roots)));
  suffix_groups_.put(bytes.words, made, made->bytes());
  return made;
}

TriePtr TokenClass::long_tokens(uint64_t max_length, const Vocabulary& vocabulary) const {
  const auto after = std::upper_bound(kLengthSteps.begin(), kLengthSteps.end(), max_length);
  const auto step = static_cast<size_t>(after - kLengthSteps.begin()) - 1;
  std::call_once(long_made_[step], [&] {
    const Trie& trie = vocabulary.trie();
    std::vector<uint32_t> nodes;
    auto root = roots_.begin();
    auto leaving = leaving_.begin();
    for (const uint32_t node : characters_->long_nodes()) {
      while (root != roots_.end() && *root + trie.size[*root] <= node) ++root;
      if (root == roots_.end()) break;
      if (node < *root) continue;
      while (leaving != leaving_.end() && leaving->node + trie.size[leaving->node] <= node) ++leaving;
      const bool leaves = leaving != leaving_.end() && leaving->node <= node;
      if ((leaves ? leaving->characters : characters_->count(node)) > kLengthSteps[step]) nodes.push_back(node);
    }
    long_tries_[step] = std::make_shared<const Trie>(trie.select(nodes));
  });
  return long_tries_[step];
}

size_t TokenClass::bytes() const {
  constexpr size_t kLater = size_t{1} << 20;  // estimate of what is made later
  return all_->bytes() + leaving_.size() * sizeof(Leaving) + kLater;
}

}  // namespace constrain
