#include "engine/tokens/trie.h"

#include <algorithm>
#include <string>

namespace constrain {

uint32_t Trie::child(uint32_t node, uint8_t value) const {
  const uint32_t end = node + size[node];
  uint32_t child = wide[node] ? (*jumps_of(node))[value] : node + 1;
  while (child < end && byte[child] < value) child += size[child];
  return child < end && byte[child] == value ? child : 0;
}

Trie Trie::starting_with(std::vector<std::string> prefixes) const {
  std::ranges::sort(prefixes);
  prefixes.erase(std::ranges::unique(prefixes).begin(), prefixes.end());
  TrieBuilder selected;
  for (const std::string& prefix : prefixes) {
    uint32_t node = 0;
    for (size_t i = 0; i < prefix.size() && (node || i == 0); ++i) node = child(node, static_cast<uint8_t>(prefix[i]));
    if (!node) continue;
    for_each_token(node, prefix, [&](const std::string& text, TokenId token) { selected.add(text, token); });
  }
  return selected.finish();
}

Trie Trie::select(std::span<const uint32_t> nodes) const {
  return select(nodes, [&](TrieBuilder& selected, uint32_t node) { selected.set(token[node]); });
}

Trie Trie::select_subtrees(std::span<const uint32_t> nodes) const {
  return select(nodes, [&](TrieBuilder& selected, uint32_t node) { selected.copy(*this, node); });
}

template <class Take>
Trie Trie::select(std::span<const uint32_t> nodes, const Take& take) const {
  TrieBuilder selected;
  std::vector<uint32_t> path{0};
  for (const uint32_t wanted : nodes) {
    uint32_t child = path.back() + 1;
    while (path.back() + size[path.back()] <= wanted) {
      child = path.back() + size[path.back()];
      path.pop_back();
    }
    selected.back_to(path.size() - 1);
    while (path.back() != wanted) {
      while (child + size[child] <= wanted) child += size[child];
      selected.descend(byte[child]);
      path.push_back(child++);
    }
    take(selected, wanted);
  }
  return selected.finish();
}

size_t Trie::bytes() const {
  constexpr size_t kNode = 3 * sizeof(uint32_t) + sizeof(uint16_t) + sizeof(uint8_t);
  size_t grouped = 0;
  for (const auto& group : groups) grouped += sizeof(group) + group.size() * sizeof(TokenId);
  return nodes() * kNode + jumps.size() * sizeof(Jumps) + grouped;
}

void Trie::index_wide_nodes() {
  wide.assign(nodes(), 0);
  for (uint32_t node = 0; node < nodes(); ++node) {
    if (size[node] <= kWide) continue;
    const uint32_t end = node + size[node];
    uint32_t children = 0;
    for (uint32_t child = node + 1; child < end; child += size[child]) ++children;
    if (children < kWide) continue;
    Jumps table;
    uint32_t child = node + 1;
    for (size_t value = 0; value < table.size(); ++value) {
      while (child < end && byte[child] < value) child += size[child];
      table[value] = child;
    }
    jumps.push_back(table);
    wide[node] = static_cast<uint32_t>(jumps.size());
  }
}

TrieBuilder::TrieBuilder() : path_{add_node(0, 0)} {}

uint32_t TrieBuilder::add_node(uint8_t byte, size_t depth) {
  trie_.size.push_back(1);
  trie_.byte.push_back(byte);
  trie_.depth.push_back(static_cast<uint16_t>(depth));
  trie_.token.push_back(kNoToken);
  return static_cast<uint32_t>(trie_.size.size() - 1);
}

void TrieBuilder::back_to(size_t depth) {
  while (path_.size() > depth + 1) {
    const uint32_t node = path_.back();
    path_.pop_back();
    trie_.size[path_.back()] += trie_.size[node];
  }
}

void TrieBuilder::descend(uint8_t byte) { path_.push_back(add_node(byte, path_.size())); }

void TrieBuilder::set(TokenId token) { trie_.token[path_.back()] = token; }

void TrieBuilder::copy(const Trie& from, uint32_t node) {
  set(from.token[node]);
  trie_.size.back() = from.size[node];
  const auto append = [&](auto& to, const auto& list) {
    const auto below = list.begin() + node + 1;
    to.insert(to.end(), below, below + from.size[node] - 1);
  };
  append(trie_.size, from.size);
  append(trie_.byte, from.byte);
  append(trie_.depth, from.depth);
  append(trie_.token, from.token);
}

void TrieBuilder::add(std::string_view text, TokenId token) {
  size_t common = 0;
  while (common < text.size() && common + 1 < path_.size() &&
         trie_.byte[path_[common + 1]] == static_cast<uint8_t>(text[common])) {
    ++common;
  }
  back_to(common);
  for (const char byte : text.substr(common)) descend(static_cast<uint8_t>(byte));
  set(token);
}

Trie TrieBuilder::finish() {
  back_to(0);
  trie_.index_wide_nodes();
  return std::move(trie_);
}

}  // namespace constrain
