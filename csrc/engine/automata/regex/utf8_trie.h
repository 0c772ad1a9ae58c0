// Character sets lowered to bytes: tries over UTF-8 in which equal subtrees are one node.
#pragma once

#include <array>

#include "engine/base/interner.h"
#include "engine/text/charset.h"

namespace constrain {

class Utf8Forest {
 public:
  using Node = uint32_t;
  static constexpr Node kNone = 0;  ///< reads nothing
  static constexpr Node kDone = 1;  ///< a whole character was read

  struct Edge {
    uint8_t first, last;
    Node target;
  };

  Utf8Forest();

  /// Returns the root of a set's trie; `kNone` for the empty set.
  Node add(const CharSet& set);

  size_t size() const { return nodes_.size(); }
  std::vector<Edge> edges(Node node) const;

 private:
  using Ranges = std::span<const CharSet::Range>;

  Node child(Ranges ranges, char32_t base, char32_t least, int bytes_left);
  void add_edges(std::vector<Edge>& edges, Ranges ranges, char32_t base, uint8_t first_byte, int count, int bytes_left);
  void add_last_bytes(std::vector<Edge>& edges, Ranges ranges, char32_t base);
  Node intern(const std::vector<Edge>& edges);

  SequenceInterner nodes_;
  std::array<Node, 4> full_;  // any sequence of this many continuation bytes
};

}  // namespace constrain
