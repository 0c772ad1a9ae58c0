#include "engine/schema/normalise.h"

#include <algorithm>

#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/base/leave.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// Limit of pairs of cells, for each permitted cell.
constexpr uint64_t kPairsPerCell = 16;

}  // namespace

void Normaliser::invalid(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::invalid, document_.place(id), keyword, reason);
}

void Normaliser::unsupported(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::unsupported, document_.place(id), keyword, reason);
}

void Normaliser::leave_out(NodeId id, const char* keyword, const std::string& reason) {
  if (!lenient_) unsupported(id, keyword, reason);
  findings_.ignored(id, keyword, reason);
  left_out_.insert(id);
}

Schema Normaliser::read(NodeId id) {
  const Value& value = *document_[id].value;
  if (!value.is(Type::object)) invalid(id, "", "a schema is an object or a boolean");
  Schema schema(value, document_.dialect(id));
  if (id >= reported_.size()) reported_.resize(id + 1);
  if (!reported_[id]) reported_[id] = true, findings_.read(id);
  return schema;
}

void Normaliser::charge(const Cells& cells) {
  cells_ += cells.count();
  if (cells_ > limits_.max_cells) refuse_cells();
}

void Normaliser::refuse_cells() const {
  throw ResourceLimit("max_cells", limits_.max_cells, "by the alternatives of the schema");
}

Cells Normaliser::meet(const Cells& a, const Cells& b) {
  Deadline::check();
  const uint64_t pairs = a.numbers.size() * b.numbers.size() + a.strings.size() * b.strings.size() +
                         a.arrays.size() * b.arrays.size() + a.objects.size() * b.objects.size();
  pairs_ += pairs;
  if (pairs > limits_.max_cells || pairs_ > kPairsPerCell * limits_.max_cells) refuse_cells();
  Cells both = intersect(a, b, conjunctions_);
  blame_ = prune(both, kPruneDepth);
  return both;
}

Cells Normaliser::satisfying(const Cells& cells, Literal literal) {
  const Cells& other = this->literal(literal);
  Cells both = meet(cells, other);
  if (other.empty()) blame_ = conjunctions_.single(literal);
  return both;
}

const Cells& Normaliser::conjunction(ConjunctionId id) {
  if (const auto it = cache_.find(id); it != cache_.end()) return it->second;
  const std::span<const Literal> members = conjunctions_[id];
  if (members.size() == 1) return literal(members.front());
  Cells cells = Cells::everything();
  for (size_t i = 0; i < members.size(); ++i) {
    const Literal member = members[i];
    // Sorted literals: a schema precedes its negation.
    const bool contradiction = i > 0 && member.node == members[i - 1].node;
    cells = contradiction ? Cells() : satisfying(cells, member);
    if (cells.empty()) conjunction_conflicts_.try_emplace(id, Conflict{member.node, "", blame_});
  }
  charge(cells);
  return cache_.emplace(id, std::move(cells)).first->second;
}

const Cells* Normaliser::known(ConjunctionId id) const {
  const std::span<const Literal> members = conjunctions_[id];
  if (members.size() == 1) {
    const auto it = literals_.find(members.front());
    return it == literals_.end() ? nullptr : &it->second;
  }
  const auto it = cache_.find(id);
  return it == cache_.end() ? nullptr : &it->second;
}

Normaliser::Conflict Normaliser::conflict(ConjunctionId id) const {
  const std::span<const Literal> members = conjunctions_[id];
  if (const auto it = conjunction_conflicts_.find(id); it != conjunction_conflicts_.end()) return it->second;
  if (const auto it = conflicts_.find(members.front()); it != conflicts_.end()) return it->second;
  return {members.front().node};
}

const Cells& Normaliser::literal(Literal literal) {
  if (const auto it = literals_.find(literal); it != literals_.end()) return it->second;
  if (std::ranges::find(under_way_, literal) != under_way_.end()) {
    if (speculating_ > 0) throw NotYet();
    invalid(literal.node, "$ref", "the reference leads back to itself without entering a value");
  }
  under_way_.push_back(literal);
  const Leave leave{[&] { under_way_.pop_back(); }};
  try {
    if (under_way_.size() > limits_.max_nesting) {
      throw ResourceLimit("max_nesting", limits_.max_nesting, "by references and combinators");
    }
    Cells cells = literal.negated ? negate(literal.node) : expand(literal.node);
    charge(cells);
    return literals_.emplace(literal, std::move(cells)).first->second;
  } catch (ResourceLimit& limit) {
    if (!limit.place) limit.place = document_.place(literal.node);
    throw;
  }
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
  Cells cells = conditions(id, schema);
  blame_ = prune(cells, kPruneDepth);
  cells = where_unevaluated(id, schema, std::move(cells));
  if (cells.empty()) conflicts_.try_emplace({id}, Conflict{id, "", blame_});
  return cells;
}

Cells Normaliser::conditions(NodeId id, const Schema& schema) {
  Cells cells = of_types(id, schema);
  const auto now = [&](const char* keyword, Cells next) {
    cells = std::move(next);
    if (cells.empty()) conflicts_.try_emplace({id}, Conflict{id, keyword, blame_});
  };
  const auto branching = [&](const char* keyword, Cells next) {
    blame_ = 0;  // each branch has a reason of its own
    now(keyword, std::move(next));
  };
  if (!cells.numbers.empty()) read_numbers(id, schema, cells.numbers.front());
  if (!cells.strings.empty()) read_strings(id, schema, cells.strings.front());
  if (!cells.arrays.empty()) read_arrays(id, schema, cells.arrays.front());
  if (!cells.objects.empty()) read_objects(id, schema, cells.objects.front());

  if (const Value* constant = schema.find("const")) now("const", meet(cells, constant_value(id, *constant)));
  if (const Value* list = schema.find("enum")) now("enum", meet(cells, values(id, "enum", *list)));
  for (const NodeId target : document_.references(id, schema)) now("$ref", satisfying(cells, {target}));
  if (!cells.objects.empty()) read_dependencies(id, schema, cells);
  if (const Value* all = schema.find("allOf")) now("allOf", all_of(id, "allOf", *all, false, cells));
  if (const Value* any = schema.find("anyOf")) branching("anyOf", meet(cells, any_of(id, "anyOf", *any, false)));
  if (const Value* one = schema.find("oneOf")) branching("oneOf", one_of(id, *one, cells));
  if (const Value* other = schema.find("not")) {
    now("not", satisfying(cells, {part(id, "not", *other), true}));
  }
  if (schema.find("if")) branching("if", if_then_else(id, schema, false, cells));
  return cells;
}

Cells Normaliser::any_of(NodeId id, const char* keyword, const Value& list, bool negated) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  Cells any;
  for (size_t i = 0; i < list.items.size(); ++i) {
    unite(any, literal({item(id, keyword, list, i), negated}));
  }
  return any;
}

Cells Normaliser::all_of(NodeId id, const char* keyword, const Value& list, bool negated, Cells cells) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  for (size_t i = 0; i < list.items.size(); ++i) {
    cells = satisfying(cells, {item(id, keyword, list, i), negated});
  }
  return cells;
}

Cells Normaliser::if_then_else(NodeId id, const Schema& schema, bool negated, const Cells& cells) {
  const Value *then = schema.find("then"), *otherwise = schema.find("else");
  if (!then && !otherwise) return negated ? Cells() : cells;
  const NodeId condition = part(id, "if", *schema.find("if"));
  const auto branch = [&](bool holds, const Value* consequence, const char* keyword) {
    if (!consequence && negated) return Cells();
    Cells found = satisfying(cells, {condition, !holds});
    return consequence ? satisfying(found, {part(id, keyword, *consequence), negated}) : found;
  };
  Cells either = branch(true, then, "then");
  unite(either, branch(false, otherwise, "else"));
  return either;
}

}  // namespace constrain::schema
