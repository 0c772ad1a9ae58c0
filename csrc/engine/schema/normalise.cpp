#include "engine/schema/normalise.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/leave.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// Pairs of cells that may be tried for each cell that there may be.
constexpr uint64_t kPairsPerCell = 16;

}  // namespace

std::string Normaliser::at(NodeId id) const {
  const Place place = document_.place(id);
  return "at " + place.document + "#" + place.pointer;
}

void Normaliser::invalid(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::invalid, document_.place(id), keyword, reason);
}

void Normaliser::unsupported(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::unsupported, document_.place(id), keyword, reason);
}

Schema Normaliser::read(NodeId id) {
  const Value& value = *document_[id].value;
  if (!value.is(Type::object)) invalid(id, "", "a schema is an object or a boolean");
  Schema schema(value, document_.dialect(id));
  for (const Ignored& one : schema.ignored()) findings_.ignored(id, one.name, one.note(document_.dialect(id)));
  return schema;
}

void Normaliser::charge(const Cells& cells, NodeId id) {
  cells_ += cells.count();
  if (cells_ > limits_.max_cells) throw ResourceLimit("max_cells", limits_.max_cells, at(id));
}

Cells Normaliser::meet(const Cells& a, const Cells& b, NodeId id) {
  const uint64_t pairs = a.numbers.size() * b.numbers.size() + a.strings.size() * b.strings.size() +
                         a.arrays.size() * b.arrays.size() + a.objects.size() * b.objects.size();
  pairs_ += pairs;
  if (pairs > limits_.max_cells || pairs_ > kPairsPerCell * limits_.max_cells)
    throw ResourceLimit("max_cells", limits_.max_cells, at(id));
  Cells both = intersect(a, b, conjunctions_);
  prune(both, kPruneDepth);
  return both;
}

const Cells& Normaliser::conjunction(ConjunctionId id) {
  if (const auto it = known_.find(id); it != known_.end()) return it->second;
  Cells cells = Cells::everything();
  const std::vector<Literal> members = conjunctions_[id];
  for (const Literal member : members) {
    cells = members.size() == 1 ? literal(member) : meet(cells, literal(member), member.node);
  }
  if (members.size() > 1) charge(cells, members.front().node);
  return known_.emplace(id, std::move(cells)).first->second;
}

const Cells& Normaliser::literal(Literal literal) {
  if (const auto it = literals_.find(literal); it != literals_.end()) return it->second;
  if (!under_way_.insert(literal).second) {
    if (speculating_ > 0) throw NotYet();
    invalid(literal.node, "$ref", "the reference leads back to itself without entering a value");
  }
  if (under_way_.size() > limits_.max_nesting) {
    throw ResourceLimit("max_nesting", limits_.max_nesting, at(literal.node));
  }
  const Leave leave{[&] { under_way_.erase(literal); }};
  Cells cells = literal.negated ? negate(literal.node) : expand(literal.node);
  charge(cells, literal.node);
  return literals_.emplace(literal, std::move(cells)).first->second;
}

Cells Normaliser::expand(NodeId id) {
  const Node& node = document_[id];
  if (node.kind == Node::Kind::constant) return value(id, *node.value);
  if (node.kind == Node::Kind::any_of) {
    Cells any;
    for (const NodeId one : node.parts) unite(any, literal({one}));
    return any;
  }
  if (node.value->is(Type::boolean)) return node.value->boolean ? Cells::everything() : Cells();
  const Schema schema = read(id);
  refuse_unsupported(id, schema);
  Cells cells = where_unevaluated(id, schema, conditions(id, schema));
  prune(cells, kPruneDepth);
  return cells;
}

Cells Normaliser::conditions(NodeId id, const Schema& schema) {
  Cells cells = Cells::everything();
  read_types(id, schema, cells);
  if (!cells.numbers.empty()) read_numbers(id, schema, cells.numbers.front());
  if (!cells.strings.empty()) read_strings(id, schema, cells.strings.front());
  if (!cells.arrays.empty()) read_arrays(id, schema, cells.arrays.front());
  if (!cells.objects.empty()) read_objects(id, schema, cells.objects.front());

  const auto also = [&](const Cells& other) { cells = meet(cells, other, id); };
  if (const Value* constant = schema.find("const")) {
    also(value(document_.constant(id, "const", *constant), *constant));
    enforced(id, "const");
  }
  if (const Value* list = schema.find("enum")) also(values(id, "enum", *list));
  for (const NodeId target : document_.references(id, schema)) also(literal({target}));
  if (!cells.objects.empty()) read_dependencies(id, schema, cells);
  if (const Value* all = schema.find("allOf")) cells = all_of(id, "allOf", *all, false, std::move(cells));
  if (const Value* any = schema.find("anyOf")) also(any_of(id, "anyOf", *any, false));
  if (const Value* one = schema.find("oneOf")) cells = one_of(id, *one, cells);
  if (const Value* other = schema.find("not")) {
    also(literal({part(id, "not", *other), true}));
    enforced(id, "not");
  }
  return schema.find("if") ? if_then_else(id, schema, false, cells) : cells;
}

Cells Normaliser::any_of(NodeId id, const char* keyword, const Value& list, bool negated) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  Cells any;
  for (size_t i = 0; i < list.items.size(); ++i) {
    unite(any, literal({item(id, keyword, list, i), negated}));
  }
  enforced(id, keyword);
  return any;
}

Cells Normaliser::all_of(NodeId id, const char* keyword, const Value& list, bool negated, Cells cells) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  for (size_t i = 0; i < list.items.size(); ++i) {
    cells = meet(cells, literal({item(id, keyword, list, i), negated}), id);
  }
  enforced(id, keyword);
  return cells;
}

Cells Normaliser::one_of(NodeId id, const Value& list, const Cells& cells) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, "oneOf", "a non-empty array of schemas is needed");
  std::vector<NodeId> branches;
  for (size_t i = 0; i < list.items.size(); ++i) branches.push_back(item(id, "oneOf", list, i));
  Cells one;
  for (const NodeId branch : branches) {
    Cells own = meet(cells, literal({branch}), id);
    for (const NodeId other : branches) {
      if (other != branch) own = without(std::move(own), other, id);
    }
    unite(one, std::move(own));
  }
  enforced(id, "oneOf");
  return one;
}

Cells Normaliser::without(Cells cells, NodeId schema, NodeId id) {
  // Most cells exclude the schema anyway. Not to negate it for them is what keeps unions small.
  Cells overlap;
  const Cells& wrong = literal({schema});
  const auto move_overlap = [&](auto Cells::* list) {
    std::erase_if(cells.*list, [&](auto& cell) {
      const bool overlaps = !meet(only(cell), wrong, id).empty();
      if (overlaps) (overlap.*list).push_back(std::move(cell));
      return overlaps;
    });
  };
  move_overlap(&Cells::numbers);
  move_overlap(&Cells::strings);
  move_overlap(&Cells::arrays);
  move_overlap(&Cells::objects);
  cells.null = cells.null && !wrong.null;
  for (int i = 0; i < 2; ++i) cells.booleans[i] = cells.booleans[i] && !wrong.booleans[i];
  if (!overlap.empty()) unite(cells, meet(overlap, literal({schema, true}), id));
  return cells;
}

Cells Normaliser::if_then_else(NodeId id, const Schema& schema, bool negated, const Cells& cells) {
  const Value *then = schema.find("then"), *otherwise = schema.find("else");
  if (!then && !otherwise) return negated ? Cells() : cells;
  const NodeId condition = part(id, "if", *schema.find("if"));
  const auto branch = [&](bool holds, const Value* consequence, const char* keyword) {
    if (!consequence && negated) return Cells();
    Cells found = meet(cells, literal({condition, !holds}), id);
    return consequence ? meet(found, literal({part(id, keyword, *consequence), negated}), id) : found;
  };
  Cells either = branch(true, then, "then");
  unite(either, branch(false, otherwise, "else"));
  enforced(id, "if");
  return either;
}

void Normaliser::refuse_unsupported(NodeId id, const Schema& schema) {
  const auto refuse = [&](const char* keyword) {
    if (!lenient_) unsupported(id, keyword, "this keyword cannot be enforced");
    findings_.ignored(id, keyword, "this keyword cannot be enforced");
  };
  // An array of one item at most has no two that are alike.
  const Value* unique = count(id, schema, "maxItems").value_or(kInfinite) > 1 ? schema.find("uniqueItems") : nullptr;
  if (unique && unique->is(Type::boolean) && unique->boolean) refuse("uniqueItems");
}

}  // namespace constrain::schema
