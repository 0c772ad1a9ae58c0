#include "engine/tokens/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/text/special_token.h"

namespace constrain {

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> eos, size_t size,
                       bool first_space_optional, Encode encode, SpecialTokens special)
    : tokens_(std::move(tokens)),
      eos_(std::move(eos)),
      duplicate_(size, kNoToken),
      size_(size),
      first_space_optional_(first_space_optional),
      encode_(std::move(encode)) {
  tokens_.resize(std::min(size_, tokens_.size()));
  std::sort(eos_.begin(), eos_.end());
  eos_.erase(std::unique(eos_.begin(), eos_.end()), eos_.end());
  for (const TokenId id : eos_) {
    if (id < 0 || static_cast<size_t>(id) >= size_) {
      throw std::invalid_argument("end-of-sequence token " + std::to_string(id) + " is outside the vocabulary of " +
                                  std::to_string(size_) + " tokens");
    }
    if (static_cast<size_t>(id) < tokens_.size()) tokens_[id].clear();
  }
  name_special_tokens(std::move(special));
  first_bytes_.resize(size_);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = spelling(static_cast<TokenId>(i));
    if (token.size() > 0xFFFF)
      throw std::invalid_argument("token " + std::to_string(i) + " is longer than 65535 bytes");
    if (!token.empty()) first_bytes_[i] = static_cast<uint8_t>(token[0]);
    longest_token_ = std::max(longest_token_, static_cast<uint16_t>(token.size()));
    reach_.add(token);
  }
  trie_ = std::make_shared<const Trie>(build_trie());
  nodes_.resize(size_);
  for (uint32_t node = 0; node < trie_->nodes(); ++node) {
    for (TokenId token = trie_->token[node]; token != kNoToken; token = next_duplicate(token)) nodes_[token] = node;
  }
  characters_ = std::make_shared<const TokenCharacters>(trie_, duplicate_);
  quoted_ = std::make_shared<const std::unordered_set<std::string>>(find_quoted());
  tokenizes_all_ = missing_bytes().empty();
}

bool Vocabulary::is_eos(TokenId token) const { return std::binary_search(eos_.begin(), eos_.end(), token); }

std::string_view Vocabulary::bytes(TokenId token) const {
  return token >= 0 && static_cast<size_t>(token) < tokens_.size() ? std::string_view(tokens_[token])
                                                                   : std::string_view();
}

std::string_view Vocabulary::spelling(TokenId token) const {
  const std::string_view text = bytes(token);
  if (!text.empty()) return text.find(kSpecialMark) == text.npos ? text : std::string_view();
  const auto special = special_spellings_.find(token);
  return special == special_spellings_.end() ? std::string_view() : std::string_view(special->second);
}

TokenId Vocabulary::special_token(std::string_view name) const {
  const auto found = std::ranges::find(special_, name, &SpecialTokens::value_type::second);
  return found == special_.end() ? kNoToken : found->first;
}

void Vocabulary::name_special_tokens(SpecialTokens names) {
  std::erase_if(names, [&](const auto& special) {
    const auto& [id, name] = special;
    return id < 0 || static_cast<size_t>(id) >= tokens_.size() || name.empty() || name.find(kSpecialMark) != name.npos;
  });
  special_ = std::move(names);
  for (const auto& [id, name] : special_) {
    tokens_[id].clear();
    special_spellings_[id] = special_spelling(name);
  }
}

Trie Vocabulary::build_trie() {
  std::vector<std::string_view> spellings(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) spellings[i] = spelling(static_cast<TokenId>(i));
  std::vector<TokenId> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](TokenId id) { return spellings[id].empty(); });
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const int c = spellings[a].compare(spellings[b]);
    return c != 0 ? c < 0 : a < b;
  });
  TrieBuilder trie;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && spellings[order[i]] == spellings[order[i - 1]]) {
      duplicate_[order[i - 1]] = order[i];
      has_duplicates_ = true;
    } else {
      trie.add(spellings[order[i]], order[i]);
    }
  }
  return trie.finish();
}

std::unordered_set<std::string> Vocabulary::find_quoted() const {
  constexpr std::string_view kLetters = "bfnrt", kEscaped = "\b\f\n\r\t";
  std::unordered_set<std::string> found;
  for (const std::string& token : tokens_) {
    for (size_t begin = token.find('"'); begin != token.npos; begin = token.find('"', begin + 1)) {
      std::string text;
      size_t at = begin + 1;
      for (; at < token.size() && token[at] != '"'; ++at) {
        const bool escaped = token[at] == '\\' && ++at < token.size();
        const size_t letter = escaped ? kLetters.find(token[at]) : kLetters.npos;
        if (at < token.size()) text += letter == kLetters.npos ? token[at] : kEscaped[letter];
      }
      if (at < token.size()) found.insert(std::move(text));
    }
  }
  return found;
}

void Vocabulary::add_duplicates(std::vector<TokenId>& tokens, size_t begin) const {
  if (!has_duplicates_) return;
  for (size_t i = begin, end = tokens.size(); i < end; ++i) {
    for (TokenId token = next_duplicate(tokens[i]); token != kNoToken; token = next_duplicate(token))
      tokens.push_back(token);
  }
}

TokenClassPtr Vocabulary::token_class(const CharacterClass& characters, const ByteSet& first) const {
  const auto& within = characters.ascii.words;
  std::vector<uint64_t> key{within[0], within[1], characters.beyond_ascii, first.words[0], first.words[1]};
  for (const auto& [least, most] : characters.excluded) key.push_back(uint64_t{least} << 32 | most);
  if (const auto cached = classes_.find(key)) return *cached;
  std::vector<uint32_t> roots;
  for (int byte = first.next(0); byte >= 0; byte = first.next(byte + 1)) {
    if (const uint32_t root = trie_->child(0, static_cast<uint8_t>(byte))) roots.push_back(root);
  }
  if (first.empty()) roots = {0};
  auto made = std::make_shared<const TokenClass>(*this, characters, std::move(roots));
  classes_.put(key, made, made->bytes());
  return made;
}

std::vector<uint8_t> Vocabulary::missing_bytes() const {
  std::vector<bool> single(256, false);
  for (uint32_t node = 1; node < trie_->nodes(); node += trie_->size[node]) {
    if (trie_->token[node] != kNoToken) single[trie_->byte[node]] = true;
  }
  std::vector<uint8_t> missing;
  for (int b = 0; b < 256; ++b) {
    const bool in_utf8 = b != 0xC0 && b != 0xC1 && b < 0xF5;
    if (in_utf8 && !single[b]) missing.push_back(static_cast<uint8_t>(b));
  }
  return missing;
}

}  // namespace constrain
