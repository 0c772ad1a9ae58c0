#include "engine/tokens/trie.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace constrain {

uint32_t Trie::child(uint32_t node, uint8_t value) const {
  const uint32_t end = node + size[node];
  uint32_t child = wide[node] ? (*jumps_of(node))[value] : node + 1;
  while (child < end && byte[child] < value) child += size[child];
  return child < end && byte[child] == value ? child : 0;
}

void Trie::append_subtree(uint32_t node, std::vector<TokenId>& out) const {
  const uint32_t end = node + size[node];
  for (; node < end && !groups.empty(); ++node) append_tokens(node, out);
  size_t count = out.size();
  out.resize(count + (end - node));
  for (; node < end; ++node) {
    // What is no token is overwritten by the next one.
    out[count] = token[node];
    count += token[node] != kNoToken;
  }
  out.resize(count);
}

Trie Trie::starting_with(std::vector<std::string> prefixes) const {
  std::ranges::sort(prefixes);
  prefixes.erase(std::ranges::unique(prefixes).begin(), prefixes.end());
  std::vector<uint32_t> nodes;
  for (const std::string& prefix : prefixes) {
    uint32_t node = 0;
    for (size_t i = 0; i < prefix.size() && (node || i == 0); ++i) node = child(node, static_cast<uint8_t>(prefix[i]));
    if (node) nodes.push_back(node);
  }
  return select_subtrees(nodes);
}

Trie Trie::select(std::span<const uint32_t> nodes) const {
  return select(nodes, nodes.size(), [&](TrieBuilder& made, uint32_t node) { made.set(token[node]); });
}

Trie Trie::select_subtrees(std::span<const uint32_t> nodes) const {
  size_t expected = 0;
  for (const uint32_t node : nodes) expected += size[node];
  return select(nodes, expected, [&](TrieBuilder& made, uint32_t node) { made.copy(*this, node); });
}

template <class Take>
Trie Trie::select(std::span<const uint32_t> nodes, size_t expected, const Take& take) const {
  TrieBuilder selected(expected + expected / 8);
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
  return nodes() * kNode + jumps.size() * sizeof(Jumps) + groups.size() * sizeof(uint32_t) +
         grouped.size() * sizeof(TokenId);
}

Trie Trie::group_subtrees(std::vector<uint32_t> roots) const {
  struct Place {
    size_t begin, end, depth;
  };
  std::vector<uint32_t> nodes;  // those with equal strings beside each other
  std::vector<Place> pending;   // ... as ranges, in reverse order
  const auto push = [&](std::vector<uint32_t>& found, size_t depth) {
    std::ranges::sort(found, std::greater(), [this](uint32_t node) { return byte[node]; });
    for (size_t i = 0; i < found.size(); ++i) {
      if (i == 0 || byte[found[i]] != byte[found[i - 1]]) pending.push_back({nodes.size(), nodes.size(), depth});
      nodes.push_back(found[i]);
      ++pending.back().end;
    }
  };
  push(roots, 0);
  TrieBuilder made;
  std::vector<uint32_t> groups{0};
  std::vector<TokenId> grouped;
  while (!pending.empty()) {
    const Place at = pending.back();
    pending.pop_back();
    made.back_to(at.depth);
    made.descend(byte[nodes[at.begin]]);
    std::vector<uint32_t>& children = roots;
    children.clear();
    for (size_t i = at.begin; i < at.end; ++i) {
      const uint32_t node = nodes[i];
      append_tokens(node, grouped);
      for (uint32_t child = node + 1; child < node + size[node]; child += size[child]) children.push_back(child);
    }
    if (grouped.size() > groups.back()) {
      made.set(static_cast<TokenId>(groups.size() - 1));
      groups.push_back(static_cast<uint32_t>(grouped.size()));
    }
    nodes.resize(at.begin);
    push(children, at.depth + 1);
  }
  Trie trie = made.finish();
  trie.groups = std::move(groups), trie.grouped = std::move(grouped);
  return trie;
}

TrieBuilder::TrieBuilder(size_t expected) {
  trie_.size.reserve(expected), trie_.byte.reserve(expected), trie_.depth.reserve(expected);
  trie_.token.reserve(expected), trie_.wide.reserve(expected);
  path_.push_back(add_node(0, 0));
}

uint32_t TrieBuilder::add_node(uint8_t byte, size_t depth) {
  trie_.size.push_back(1);
  trie_.byte.push_back(byte);
  trie_.depth.push_back(static_cast<uint16_t>(depth));
  trie_.token.push_back(kNoToken);
  trie_.wide.push_back(0);
  return static_cast<uint32_t>(trie_.size.size() - 1);
}

void TrieBuilder::back_to(size_t depth) {
  while (path_.size() > depth + 1) {
    const uint32_t node = path_.back();
    path_.pop_back();
    trie_.size[path_.back()] += trie_.size[node];
    index_wide_node(node);
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
  trie_.wide.resize(trie_.size.size());
  for (uint32_t wide = node, to = path_.back(); to < trie_.size.size(); ++wide, ++to) {
    if (!from.wide[wide]) continue;
    trie_.jumps.push_back(*from.jumps_of(wide));
    for (uint32_t& child : trie_.jumps.back()) child += to - wide;
    trie_.wide[to] = static_cast<uint32_t>(trie_.jumps.size());
  }
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
  index_wide_node(0);
  return std::move(trie_);
}

/// Makes the child table of a node if it has many children and none yet.
void TrieBuilder::index_wide_node(uint32_t node) {
  if (trie_.size[node] <= Trie::kWide || trie_.wide[node]) return;
  const uint32_t end = node + trie_.size[node];
  uint32_t children = 0;
  for (uint32_t child = node + 1; child < end; child += trie_.size[child]) ++children;
  if (children < Trie::kWide) return;
  Trie::Jumps& table = trie_.jumps.emplace_back();
  uint32_t child = node + 1;
  for (size_t value = 0; value < table.size(); ++value) {
    while (child < end && trie_.byte[child] < value) child += trie_.size[child];
    table[value] = child;
  }
  trie_.wide[node] = static_cast<uint32_t>(trie_.jumps.size());
}

}  // namespace constrain
