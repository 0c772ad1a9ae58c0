#include "engine/automata/regex/regex_ast.h"

#include <algorithm>

namespace constrain::regex {

namespace {

uint32_t add_widths(uint32_t a, uint32_t b) { return a > kUnbounded - b ? kUnbounded : a + b; }

uint32_t multiply_widths(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{a} * b, kUnbounded));
}

}  // namespace

NodeId Ast::add_sequence(std::vector<NodeId> children) {
  return children.size() == 1 ? children[0] : add({.kind = Kind::sequence, .children = std::move(children)});
}

NodeId Ast::add_choice(std::vector<NodeId> children) {
  return children.size() == 1 ? children[0] : add({.kind = Kind::choice, .children = std::move(children)});
}

Width width(const Ast& ast, NodeId id) {
  const Node& node = ast[id];
  switch (node.kind) {
    case Kind::set:
      return {1, 1};
    case Kind::sequence: {
      Width sum = {0, 0};
      for (NodeId child : node.children) {
        const Width part = width(ast, child);
        sum = {add_widths(sum.low, part.low), add_widths(sum.high, part.high)};
      }
      return sum;
    }
    case Kind::choice: {
      Width range = {kUnbounded, 0};
      for (NodeId child : node.children) {
        const Width part = width(ast, child);
        range = {std::min(range.low, part.low), std::max(range.high, part.high)};
      }
      return range;
    }
    case Kind::repeat: {
      const Width part = width(ast, node.children[0]);
      return {multiply_widths(part.low, node.low), multiply_widths(part.high, node.high)};
    }
    default:
      return {0, 0};
  }
}

CharSet first_characters(const Ast& ast, NodeId id) {
  const Node& node = ast[id];
  CharSet first;
  switch (node.kind) {
    case Kind::set:
      return node.set;
    case Kind::sequence:
      for (NodeId child : node.children) {
        first = first | first_characters(ast, child);
        if (width(ast, child).low > 0) break;
      }
      return first;
    case Kind::choice:
      for (NodeId child : node.children) first = first | first_characters(ast, child);
      return first;
    case Kind::repeat:
      return first_characters(ast, node.children[0]);
    default:
      return first;
  }
}

bool has_look(const Ast& ast, NodeId id) {
  const Node& node = ast[id];
  return node.kind == Kind::look ||
         std::ranges::any_of(node.children, [&](NodeId child) { return has_look(ast, child); });
}

}  // namespace constrain::regex
