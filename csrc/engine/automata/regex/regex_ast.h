// Syntax trees of regular expressions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/text/charset.h"

namespace constrain::regex {

using NodeId = uint32_t;
inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

enum class Kind : uint8_t {
  sequence,    ///< all children in order; the empty text if there are none
  choice,      ///< one of the children, earlier ones preferred
  set,         ///< one character
  repeat,      ///< the child, `low` to `high` times
  look,        ///< lookaround: the child matches ahead of (or behind) this place, or does not (`negative`)
  text_start,  ///< before the first character
  text_end     ///< after the last character
};

struct Node {
  Kind kind = Kind::sequence;
  std::vector<NodeId> children = {};
  CharSet set = {};
  uint32_t low = 0, high = 0;
  bool greedy = true;
  bool behind = false, negative = false;
};

/// The nodes of one pattern; children come before their parents.
struct Ast {
  std::vector<Node> nodes;
  NodeId root = 0;

  const Node& operator[](NodeId id) const { return nodes[id]; }
  NodeId add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<NodeId>(nodes.size() - 1);
  }
  NodeId add_set(CharSet set) { return add({.kind = Kind::set, .set = std::move(set)}); }
  NodeId add_sequence(std::vector<NodeId> children);
  NodeId add_choice(std::vector<NodeId> children);
  NodeId add_look(NodeId child, bool behind, bool negative) {
    return add({.kind = Kind::look, .children = {child}, .behind = behind, .negative = negative});
  }
};

/// Fewest and most characters of a match; `kUnbounded` if there is no maximum.
struct Width {
  uint32_t low, high;
};
Width width(const Ast& ast, NodeId id);

/// Characters that a match of the node can begin with.
CharSet first_characters(const Ast& ast, NodeId id);

/// True if the node contains a lookaround.
bool has_look(const Ast& ast, NodeId id);

}  // namespace constrain::regex
