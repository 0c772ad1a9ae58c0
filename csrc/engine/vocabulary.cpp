#include "engine/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/utf8.h"

namespace constrain {

namespace {

/// Scalar values of a text that is plain (see PlainTokens), or 0.
size_t plain_length(std::string_view text) {
  const auto plain = [](char c) { return static_cast<uint8_t>(c) >= 0x20 && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain) || !is_utf8(text)) return 0;
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// A control character stands before any quotation mark, so that the text cannot begin within a JSON string.
bool breaks_string(std::string_view text) {
  return std::any_of(text.begin(), std::find(text.begin(), text.end(), '"'),
                     [](char c) { return static_cast<uint8_t>(c) < 0x20; });
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> eos, size_t size,
                       bool first_space_optional)
    : tokens_(std::move(tokens)),
      eos_(std::move(eos)),
      duplicate_(size, kNoToken),
      size_(size),
      first_space_optional_(first_space_optional) {
  tokens_.resize(std::min(size_, tokens_.size()));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].size() > 0xFFFF)
      throw std::invalid_argument("token " + std::to_string(i) + " is longer than 65535 bytes");
  }
  for (const std::string& token : tokens_)
    longest_token_ = std::max(longest_token_, static_cast<uint16_t>(token.size()));
  std::sort(eos_.begin(), eos_.end());
  eos_.erase(std::unique(eos_.begin(), eos_.end()), eos_.end());
  for (const TokenId id : eos_) {
    if (id < 0 || static_cast<size_t>(id) >= size_) {
      throw std::invalid_argument("end-of-sequence token " + std::to_string(id) + " is outside the vocabulary of " +
                                  std::to_string(size_) + " tokens");
    }
    if (static_cast<size_t>(id) < tokens_.size()) tokens_[id].clear();
  }
  std::vector<TokenId> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](TokenId id) { return tokens_[id].empty(); });
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const int c = tokens_[a].compare(tokens_[b]);
    return c != 0 ? c < 0 : a < b;
  });
  trie_ = build_trie(order);
  std::erase_if(order, [&](TokenId id) { return plain_length(tokens_[id]) > 0 || breaks_string(tokens_[id]); });
  plain_.others = build_trie(order);
  build_plain();
}

bool Vocabulary::is_eos(TokenId token) const { return std::binary_search(eos_.begin(), eos_.end(), token); }

std::string_view Vocabulary::bytes(TokenId token) const {
  return token >= 0 && static_cast<size_t>(token) < tokens_.size() ? std::string_view(tokens_[token])
                                                                   : std::string_view();
}

Trie Vocabulary::build_trie(std::vector<TokenId> order) {
  Trie trie;
  const auto add_node = [&](uint8_t byte, size_t depth) {
    trie.size.push_back(1);
    trie.byte.push_back(byte);
    trie.depth.push_back(static_cast<uint16_t>(depth));
    trie.token.push_back(kNoToken);
    return static_cast<uint32_t>(trie.size.size() - 1);
  };
  std::vector<uint32_t> path{add_node(0, 0)};  // nodes of the previous string, by depth
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      const uint32_t node = path.back();
      path.pop_back();
      trie.size[path.back()] += trie.size[node];
    }
  };
  std::string_view previous;
  TokenId last = kNoToken;
  for (const TokenId id : order) {
    const std::string_view text = tokens_[id];
    if (text == previous) {
      duplicate_[last] = id;
    } else {
      const auto [end, unused] = std::mismatch(text.begin(), text.end(), previous.begin(), previous.end());
      const size_t common = static_cast<size_t>(end - text.begin());
      close_to(common);
      for (size_t d = common; d < text.size(); ++d) path.push_back(add_node(static_cast<uint8_t>(text[d]), d + 1));
      trie.token[path.back()] = id;
      previous = text;
    }
    last = id;
  }
  close_to(0);
  trie.index_wide_nodes();
  return trie;
}

void Vocabulary::build_plain() {
  plain_.up_to.assign(PlainTokens::kDense + 1, std::vector<uint32_t>(mask_words()));
  plain_.all.assign(mask_words(), 0);
  for (TokenId id = 0; static_cast<size_t>(id) < tokens_.size(); ++id) {
    const size_t length = plain_length(tokens_[id]);
    if (length == 0) continue;
    const auto set = [&](std::vector<uint32_t>& mask) { mask[id / 32] |= 1u << (id % 32); };
    set(plain_.all);
    if (length > PlainTokens::kDense) {
      plain_.long_ones.emplace_back(static_cast<uint32_t>(length), id);
    } else {
      set(plain_.up_to[length]);
    }
  }
  for (size_t n = 1; n <= PlainTokens::kDense; ++n) {
    for (size_t word = 0; word < mask_words(); ++word) plain_.up_to[n][word] |= plain_.up_to[n - 1][word];
  }
  std::sort(plain_.long_ones.begin(), plain_.long_ones.end(), std::greater<>());
}

void PlainTokens::add(uint64_t room, uint32_t* mask) const {
  const std::vector<uint32_t>& base = room >= longest() ? all : up_to[std::min<uint64_t>(room, kDense)];
  for (size_t word = 0; word < base.size(); ++word) mask[word] |= base[word];
  if (room >= longest()) return;
  for (auto it = long_ones.rbegin(); it != long_ones.rend() && it->first <= room; ++it) {
    mask[it->second / 32] |= 1u << (it->second % 32);
  }
}

std::vector<uint8_t> Vocabulary::missing_bytes() const {
  std::vector<bool> single(256, false);
  for (uint32_t node = 1; node < trie_.nodes(); node += trie_.size[node]) {
    if (trie_.token[node] != kNoToken) single[trie_.byte[node]] = true;
  }
  std::vector<uint8_t> missing;
  for (int b = 0; b < 256; ++b) {
    const bool in_utf8 = b != 0xC0 && b != 0xC1 && b < 0xF5;
    if (in_utf8 && !single[b]) missing.push_back(static_cast<uint8_t>(b));
  }
  return missing;
}

}  // namespace constrain
