// A trie of tokens in preorder, for walks with parse threads.
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
  /// Child table: for each byte the first child whose byte is not smaller, or the end of the subtree.
  using Jumps = std::array<uint32_t, 256>;
  static constexpr uint32_t kWide = 24;  ///< fewest children of a node with a table

  std::vector<uint32_t> size;   ///< nodes of the subtree, including the node
  std::vector<uint8_t> byte;    ///< last byte of the node's string
  std::vector<uint16_t> depth;  ///< length of the node's string in bytes
  std::vector<TokenId> token;   ///< a token with exactly these bytes, or kNoToken
  std::vector<uint32_t> wide;   ///< 1 + index into `jumps`, or 0
  std::vector<Jumps> jumps;
  /// If not empty, `token` is the number of a group of `grouped`, which begins and ends at `groups`.
  std::vector<uint32_t> groups;
  std::vector<TokenId> grouped;

  size_t nodes() const { return size.size(); }

  const Jumps* jumps_of(uint32_t node) const { return wide[node] ? &jumps[wide[node] - 1] : nullptr; }

  /// The child of a node for a byte, or 0.
  uint32_t child(uint32_t node, uint8_t byte) const;

  /// Appends the tokens of a node.
  void append_tokens(uint32_t node, std::vector<TokenId>& out) const {
    if (token[node] == kNoToken) return;
    if (groups.empty()) {
      out.push_back(token[node]);
    } else {
      const uint32_t* group = &groups[static_cast<size_t>(token[node])];
      out.insert(out.end(), grouped.begin() + group[0], grouped.begin() + group[1]);
    }
  }

  /// Appends the tokens of a subtree.
  void append_subtree(uint32_t node, std::vector<TokenId>& out) const;

  /// Selects the tokens that begin with one of some strings, none of which is a prefix of another.
  Trie starting_with(std::vector<std::string> prefixes) const;

  /// Selects the tokens at some nodes, given in order.
  Trie select(std::span<const uint32_t> nodes) const;

  /// Selects the tokens in some subtrees, given in order and disjoint.
  Trie select_subtrees(std::span<const uint32_t> nodes) const;

  /// Groups the tokens in some subtrees by their strings from the root of the subtree on, whose byte is the first.
  Trie group_subtrees(std::vector<uint32_t> roots) const;

  size_t bytes() const;

 private:
  template <class Take>
  Trie select(std::span<const uint32_t> nodes, size_t expected, const Take& take) const;
};

using TriePtr = std::shared_ptr<const Trie>;

/// Builds a trie from strings in byte order.
class TrieBuilder {
 public:
  /// Makes room for some nodes.
  explicit TrieBuilder(size_t expected = 0);

  /// Adds a string: not empty, and greater than all before.
  void add(std::string_view text, TokenId token);

  /// Adds nodes one by one: goes back up to a depth, descends by bytes, and sets the token of the current node.
  void back_to(size_t depth);
  void descend(uint8_t byte);
  void set(TokenId token);
  /// Copies a subtree of another trie to the current node, which has no children.
  void copy(const Trie& from, uint32_t node);

  Trie finish();

 private:
  uint32_t add_node(uint8_t byte, size_t depth);
  void index_wide_node(uint32_t node);

  Trie trie_;
  std::vector<uint32_t> path_;  // nodes of the last string
};

}  // namespace constrain
