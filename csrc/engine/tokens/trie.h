// The byte strings of a vocabulary, arranged for walking them with an automaton.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace constrain {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

/// Distinct byte strings in depth-first preorder. Node 0 is the empty string; the subtree of node i is [i, i +
/// size(i)), its first child i + 1, its next sibling i + size(i). Siblings are in the order of their bytes.
struct Trie {
  /// For each byte the first child whose byte is not smaller, or the node after the subtree.
  using Jumps = std::array<uint32_t, 256>;
  static constexpr uint32_t kWide = 24;  ///< children from which on a node has jumps

  std::vector<uint32_t> size;   ///< nodes of the subtree, the node itself included
  std::vector<uint8_t> byte;    ///< last byte of the node's string
  std::vector<uint16_t> depth;  ///< length of the node's string in bytes
  std::vector<TokenId> token;   ///< a token with just these bytes, or kNoToken
  std::vector<uint32_t> wide;   ///< 1 + index into `jumps`, or 0
  std::vector<Jumps> jumps;
  /// Where there are groups, `token` tells the number of one.
  std::vector<std::vector<TokenId>> groups;

  size_t nodes() const { return size.size(); }

  const Jumps* jumps_of(uint32_t node) const { return wide[node] ? &jumps[wide[node] - 1] : nullptr; }

  /// The child of a node for a byte, or 0.
  uint32_t child(uint32_t node, uint8_t byte) const;

  /// Calls `use(string, token)` for the tokens at a node and below it, in the order of their bytes; `text` is the
  /// string of the node, or what is to stand for it.
  template <class Use>
  void for_each_token(uint32_t node, std::string text, const Use& use) const {
    const size_t base = text.size();
    for (uint32_t below = node; below < node + size[node]; ++below) {
      text.resize(base + depth[below] - depth[node]);
      if (below != node) text.back() = static_cast<char>(byte[below]);
      if (token[below] != kNoToken) use(text, token[below]);
    }
  }

  /// The tokens that begin with one of some strings, none of which begins with another, arranged in the same way.
  Trie starting_with(std::vector<std::string> prefixes) const;

  /// The tokens of some nodes, which come in order, arranged in the same way.
  Trie select(std::span<const uint32_t> nodes) const;

  /// The tokens of some nodes and of all below them; the nodes come in order, and none is below another.
  Trie select_subtrees(std::span<const uint32_t> nodes) const;

  size_t bytes() const;

  /// Makes `wide` and `jumps` from the rest.
  void index_wide_nodes();

 private:
  template <class Take>
  Trie select(std::span<const uint32_t> nodes, const Take& take) const;
};

using TriePtr = std::shared_ptr<const Trie>;

/// Makes a trie of strings that come in the order of their bytes.
class TrieBuilder {
 public:
  TrieBuilder();

  /// `text` is not empty, and comes after all before it.
  void add(std::string_view text, TokenId token);

  /// The same node by node: goes back up to a depth, then down by bytes, and gives the node that was come to a token.
  void back_to(size_t depth);
  void descend(uint8_t byte);
  void set(TokenId token);
  /// Makes the node that was come to, which is new, the same as a node of another trie, with all below it.
  void copy(const Trie& from, uint32_t node);

  Trie finish();

 private:
  uint32_t add_node(uint8_t byte, size_t depth);

  Trie trie_;
  std::vector<uint32_t> path_;  // nodes of the last string, by depth
};

}  // namespace constrain
