#include "engine/tokens/token_characters.h"

#include <algorithm>

#include "engine/base/bits.h"
#include "engine/text/utf8.h"
#include "engine/tokens/token_class.h"

namespace constrain {

/// Progress of a trie string through characters.
struct TokenCharacters::Place {
  Utf8State utf8 = Utf8State::boundary;
  char32_t bits = 0;  ///< code point bits so far, beyond ASCII
};

TokenCharacters::TokenCharacters(TriePtr trie, std::span<const TokenId> duplicates)
    : trie_(std::move(trie)),
      count_(trie_->nodes()),
      lead_(trie_->nodes()),
      begins_(trie_->nodes()),
      ends_(trie_->nodes()),
      no_ascii_(trie_->nodes() / 32 + 1) {
  std::vector<Place> places(size_t{*std::ranges::max_element(trie_->depth)} + 1);
  std::vector<uint32_t> parents(places.size());
  for (uint32_t node = 1; node < trie_->nodes(); ++node) {
    const size_t depth = trie_->depth[node];
    const Place& from = places[depth - 1];
    Place& to = places[depth];
    begins_[node] = from.utf8 == Utf8State::boundary;
    lead_[node] = begins_[node] ? trie_->byte[node] : lead_[parents[depth - 1]];
    count_[node] = static_cast<uint16_t>(count_[parents[depth - 1]] + begins_[node]);
    parents[depth] = node;
    ends_[node] = step(from, node, to);
    nodes_[ends_[node]].push_back(node);
    if (ends_[node] >= kPart) bits::set(no_ascii_.data(), node);
  }
  std::ranges::sort(beyond_, {}, &Beyond::first);
  list_tokens(duplicates);
}

/// Moves on to the byte of a node, and returns how its string ends.
uint8_t TokenCharacters::step(const Place& from, uint32_t node, Place& to) {
  const uint8_t byte = trie_->byte[node];
  const bool first = begins_[node];
  to.utf8 = next_utf8(from.utf8, byte);
  if (to.utf8 == Utf8State::malformed) return first || from.utf8 == to.utf8 ? kStray : lead_[node];
  if (first && byte < 0x80) return byte;
  const int more = missing_bytes(to.utf8);
  to.bits = first ? static_cast<char32_t>(byte & (0x3F >> more)) : from.bits << 6 | (byte & 0x3F);
  const auto [least, most] = scalar_range(to.bits, more);
  beyond_.push_back({least, most, node});
  return kPart;
}

void TokenCharacters::list_tokens(std::span<const TokenId> duplicates) {
  up_to_.fill(std::vector<uint32_t>((duplicates.size() + 31) / 32));
  before_.reserve(trie_->nodes() + 1);
  for (uint32_t node = 0; node < trie_->nodes(); ++node) {
    before_.push_back(static_cast<uint32_t>(tokens_.size()));
    const uint32_t characters = count_[node];
    for (TokenId token = trie_->token[node]; token != kNoToken; token = duplicates[static_cast<size_t>(token)]) {
      tokens_.push_back(token);
      if (characters > kShort) long_.emplace_back(characters, token);
      for (size_t n = characters; n <= kShort; ++n) bits::set(up_to_[n].data(), static_cast<size_t>(token));
    }
    if (trie_->token[node] != kNoToken && characters > TokenClass::kLengthSteps.front()) long_nodes_.push_back(node);
  }
  before_.push_back(static_cast<uint32_t>(tokens_.size()));
  std::ranges::sort(long_);
}

std::vector<Leaving> TokenCharacters::leaving(const CharacterClass& within, std::span<const uint32_t> roots) const {
  const auto stays = [&](size_t end) {
    return end < kPart ? within.ascii.has(static_cast<uint8_t>(end)) : end == kPart && within.beyond_ascii;
  };
  std::vector<uint32_t> marks = within.beyond_ascii ? std::vector<uint32_t>(no_ascii_.size()) : no_ascii_;
  size_t leave = 0;
  for (size_t end = 0; end < nodes_.size(); ++end) leave += stays(end) ? 0 : nodes_[end].size();
  // Where most nodes leave, few have to be looked at, because none is below another.
  const bool few_stay = leave > trie_->nodes() / 2;
  for (size_t end = 0; end < nodes_.size() && !few_stay; ++end) {
    if (stays(end) || (end >= kPart && !within.beyond_ascii)) continue;
    for (const uint32_t node : nodes_[end]) bits::set(marks.data(), node);
  }
  for (const auto& [first, last] : within.excluded) {
    auto one = std::ranges::lower_bound(beyond_, first, {}, &Beyond::first);
    for (; one != beyond_.end() && one->first <= last; ++one) {
      if (one->last <= last) bits::set(marks.data(), one->node);
    }
  }
  const auto next = [&](size_t node, size_t end_node) {
    if (!few_stay) return bits::next(marks, node);
    while (node < end_node && stays(ends_[node]) && !(marks[node / 32] >> (node % 32) & 1)) ++node;
    return node;
  };
  std::vector<Leaving> found;
  for (const uint32_t root : roots) {
    const uint32_t end = root + trie_->size[root];
    for (size_t node = next(root + 1, end); node < end; node = next(node + trie_->size[node], end)) {
      found.push_back({static_cast<uint32_t>(node), count_[node] - 1u - count_[root], lead_[node], !begins_[node]});
    }
  }
  return found;
}

}  // namespace constrain
