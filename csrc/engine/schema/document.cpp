#include "engine/schema/document.h"

#include <algorithm>

#include "engine/schema/uri.h"

namespace constrain::schema {

using json::Value;

namespace {

const Value* find_string(const Value& value, std::string_view key) {
  const Value* found = value.find(key);
  return found && found->is(Value::Type::string) ? found : nullptr;
}

/// The identifier of a schema in a dialect, which is that of the surrounding schema; may be empty.
std::string_view id_of(const Value& value, Dialect dialect) {
  // Before 2019-09 a reference hides its siblings, including `$id`.
  if (dialect.draft <= Draft::draft7 && value.find("$ref")) return {};
  const Value* id = find_string(value, dialect.draft == Draft::draft4 ? "id" : "$id");
  return id ? std::string_view(id->text) : std::string_view();
}

bool names_resource(std::string_view id) { return !id.empty() && !id.starts_with('#'); }

/// Cheap test that most schemas without identifiers and anchors fail.
bool may_be_named(const Value& value) {
  return std::ranges::any_of(value.members, [](const Value::Member& member) {
    return member.first == "id" || (member.first.starts_with('$') && member.first != "$ref");
  });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view fragment_of(std::string_view reference) {
  const size_t hash = reference.find('#');
  return hash == std::string_view::npos ? std::string_view() : reference.substr(hash + 1);
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

Document::Document(json::Tree schema, Retrieve retrieve, Formats formats)
    : retrieve_(std::move(retrieve)), formats_(formats) {
  static const Value kFalse{.type = Value::Type::boolean};
  nodes_.push_back({.value = &kFalse});
  static const Scope kNoAnchors;
  scopes_.push_back(&kNoAnchors);
  intern(Scope());
  trees_.push_back(std::move(schema));
  load(trees_.back().root, "", standard_dialect(Draft::draft2020, formats));
}

NodeId Document::root() { return in_scope(resources_.front().root, enter(kEmptyScope, 0)); }

Place Document::place(NodeId id) const {
  Place place;
  for (; nodes_[id].parent != id; id = nodes_[id].parent) place.pointer = nodes_[id].step.text() + place.pointer;
  if (const auto it = documents_.find(id); it != documents_.end()) place.document = it->second;
  return place;
}

std::vector<Place> Document::places(NodeId id) const {
  std::vector<Place> found;
  const auto add = [&](NodeId parent, const Step& step) {
    for (Place& place : places(parent)) {
      found.push_back(std::move(place));
      found.back().pointer += step.text();
    }
  };
  const Node& node = nodes_[id];
  if (node.parent == id) return {place(id)};
  add(node.parent, node.step);
  const auto [begin, end] = elsewhere_.equal_range({node.value, node.resource});
  for (auto it = begin; it != end; ++it) add(it->second.first, it->second.second);
  return found;
}

// ---- Nodes.

NodeId Document::intern(Node node, Holds holds) {
  const bool placed = !placed_.insert(node.value).second;
  node.value = &equal_.first(*node.value, holds);
  const Key key{node.value, node.kind, node.scope, node.resource};
  const auto [it, added] = ids_.try_emplace(key, static_cast<NodeId>(nodes_.size()));
  if (added) {
    nodes_.push_back(std::move(node));
  } else if (!placed) {
    elsewhere_.emplace(std::pair(node.value, node.resource), std::pair(node.parent, node.step));
  }
  return it->second;
}

NodeId Document::in_scope(NodeId place, ScopeId scope) {
  Node node = nodes_[place];
  node.scope = scope;
  return intern(std::move(node));
}

NodeId Document::child(NodeId parent, const Step& step, const Value& value, Holds holds) {
  const Node& from = nodes_[parent];
  const Node node{.value = &value, .parent = parent, .step = step, .resource = from.resource, .scope = from.scope};
  const std::string_view id = id_of(value, dialect(parent));
  if (!names_resource(id)) return intern(node, holds);

  if (!resource_of_.contains(&value)) {
    Node place = node;
    place.scope = kNoScope;
    const NodeId root = intern(std::move(place));
    add_resource(root, join_uri(resources_[from.resource].uri, id), dialect_of(root, dialect(parent)));
  }
  const uint32_t resource = resource_of_.at(&value);
  return in_scope(resources_[resource].root, enter(node.scope, resource));
}

NodeId Document::constant(NodeId parent, const Step& step, const Value& value) {
  return intern({.value = &value,
                 .parent = parent,
                 .step = step,
                 .resource = nodes_[parent].resource,
                 .kind = Node::Kind::constant},
                Holds::value);
}

NodeId Document::any_of(NodeId parent, std::vector<NodeId> parts) {
  const auto [it, added] = unions_.try_emplace(std::move(parts), static_cast<NodeId>(nodes_.size()));
  if (added) {
    nodes_.push_back({.parent = parent,
                      .resource = nodes_[parent].resource,
                      .scope = nodes_[parent].scope,
                      .kind = Node::Kind::any_of,
                      .parts = it->first});
  }
  return it->second;
}

// ---- Dynamic scopes.

ScopeId Document::intern(Scope scope) {
  const auto [it, added] = scope_ids_.try_emplace(std::move(scope), static_cast<ScopeId>(scopes_.size()));
  if (added) scopes_.push_back(&it->first);
  return it->second;
}

ScopeId Document::enter(ScopeId scope, uint32_t resource) {
  const Scope& anchors = resources_[resource].dynamic_anchors;
  if (scope == kNoScope || anchors.empty()) return scope;
  Scope inner = *scopes_[scope];
  inner.insert(anchors.begin(), anchors.end());  // existing entries are further out, and take precedence
  return intern(std::move(inner));
}

// ---- Documents and resources.

uint32_t Document::load(const Value& root, const std::string& uri, Dialect inherited) {
  const auto node = static_cast<NodeId>(nodes_.size());
  if (!resources_.empty()) documents_[node] = uri;
  nodes_.push_back({.value = &root, .parent = node});
  const Dialect dialect = dialect_of(node, inherited);
  const std::string_view id = id_of(root, dialect);
  // A document may be retrieved by the name that its identifier, resolved against its place, has.
  const bool same = !names_resource(id) || uri.ends_with(id);
  const uint32_t resource = add_resource(node, same ? uri : join_uri(uri, id), dialect);
  resource_ids_.try_emplace(uri, resource);
  return resource;
}

uint32_t Document::add_resource(NodeId root, std::string uri, Dialect dialect) {
  const auto resource = static_cast<uint32_t>(resources_.size());
  const Value& value = *nodes_[root].value;
  nodes_[root].resource = resource;
  resource_of_.emplace(&value, resource);
  resource_ids_.try_emplace(uri, resource);
  resources_.push_back({std::move(uri), root, dialect});
  std::vector<Below> path;
  index(root, path, value);
  return resource;
}

Dialect Document::dialect_of(NodeId root, Dialect inherited) {
  const Value* schema = nodes_[root].value->find("$schema");
  if (!schema) return inherited;
  if (!schema->is(Value::Type::string)) {
    throw SchemaError(SchemaError::Kind::invalid, place(root), "$schema", "a string is needed");
  }
  if (const auto draft = draft_of(schema->text)) return standard_dialect(*draft, formats_);
  const auto metaschema = retrieve_(join_uri("", schema->text));
  const Value* meta = metaschema ? find_string(metaschema->root, "$schema") : nullptr;
  const auto draft = meta ? draft_of(meta->text) : std::nullopt;
  if (!draft) {
    throw SchemaError(SchemaError::Kind::unsupported, place(root), "$schema",
                      quoted(schema->text) +
                          " is neither draft 4, 6, 7, 2019-09 or 2020-12 nor a metaschema of the registry; without "
                          "`$schema` a schema is read as 2020-12");
  }
  const Value* vocabularies = metaschema->root.find("$vocabulary");
  if (!vocabularies) return standard_dialect(*draft, formats_);
  return {.draft = *draft, .groups = groups_of(*vocabularies, formats_)};
}

void Document::index(NodeId from, std::vector<Below>& path, const Value& value) {
  if (!value.is(Value::Type::object)) return;
  std::vector<Below> below;
  std::vector<Below>* rest = &path;
  if (may_be_named(value)) {
    for (const Below& one : path) from = child(from, one.step, *one.value);
    if (!path.empty() && names_resource(id_of(value, dialect(from)))) return;  // `child` has handled it
    add_anchors(from);
    rest = &below;
  }
  for (const auto& [name, member] : value.members) {
    const Keyword* keyword = find_keyword(name);
    if (!keyword || keyword->holds == Holds::value) continue;
    const auto enter = [&](const std::string_view* key, size_t position, const Value& schema) {
      rest->push_back({{keyword->name, key, position}, &schema});
      index(from, *rest, schema);
      rest->pop_back();
    };
    if (keyword->holds == Holds::map) {
      for (const auto& [key, schema] : member.members) enter(&key, Step::kNoIndex, schema);
    } else {
      enter(nullptr, Step::kNoIndex, member);
      for (size_t i = 0; i < member.items.size(); ++i) enter(nullptr, i, member.items[i]);
    }
  }
}

void Document::add_anchors(NodeId id) {
  const Value& value = *nodes_[id].value;
  Resource& resource = resources_[nodes_[id].resource];
  const Draft draft = resource.dialect.draft;
  const auto add = [&](std::map<std::string, NodeId>& anchors, const Value* name) {
    if (name) anchors.try_emplace(std::string(name->text), id);
  };
  if (const std::string_view own = id_of(value, resource.dialect); own.starts_with('#')) {
    resource.anchors.try_emplace(std::string(own.substr(1)), id);
  }
  if (draft >= Draft::draft2019) add(resource.anchors, find_string(value, "$anchor"));
  if (draft == Draft::draft2020) {
    add(resource.anchors, find_string(value, "$dynamicAnchor"));
    add(resource.dynamic_anchors, find_string(value, "$dynamicAnchor"));
  }
  const Value* recursive = value.find("$recursiveAnchor");
  if (draft == Draft::draft2019 && id == resource.root && recursive && recursive->boolean) {
    resource.dynamic_anchors.try_emplace("", id);
  }
}

// ---- References.

std::vector<NodeId> Document::references(NodeId from, const Schema& schema) {
  std::vector<NodeId> found;
  const auto text = [&](const char* keyword) {
    const Value* value = schema.find(keyword);
    if (value && !value->is(Value::Type::string)) {
      throw SchemaError(SchemaError::Kind::invalid, place(from), keyword, "a reference is a string");
    }
    return value ? &value->text : nullptr;
  };
  if (const std::string_view* reference = text("$ref")) {
    const NodeId target = resolve(from, "$ref", *reference);
    found.push_back(in_scope(target, enter(nodes_[from].scope, nodes_[target].resource)));
  }
  for (const char* keyword : {"$dynamicRef", "$recursiveRef"}) {
    if (const std::string_view* reference = text(keyword))
      found.push_back(resolve_dynamically(from, keyword, *reference));
  }
  return found;
}

NodeId Document::resolve_dynamically(NodeId from, const char* keyword, std::string_view reference) {
  NodeId target = resolve(from, keyword, reference);
  const auto& anchors = resources_[nodes_[target].resource].dynamic_anchors;
  const std::string name = percent_decode(fragment_of(reference));
  if (const auto anchor = anchors.find(name); anchor != anchors.end() && anchor->second == target) {
    const Scope& scope = *scopes_[nodes_[from].scope];
    if (const auto outermost = scope.find(name); outermost != scope.end()) target = outermost->second;
  }
  return in_scope(target, enter(nodes_[from].scope, nodes_[target].resource));
}

NodeId Document::resolve(NodeId from, const char* keyword, std::string_view reference) {
  const uint32_t resource = find_resource(from, keyword, reference);
  const std::string fragment = percent_decode(fragment_of(reference));
  const NodeId root = resources_[resource].root;
  if (fragment.empty()) return root;
  if (fragment.starts_with('/')) return follow(root, fragment, keyword, from);
  const auto& anchors = resources_[resource].anchors;
  if (const auto it = anchors.find(fragment); it != anchors.end()) return it->second;
  throw SchemaError(SchemaError::Kind::invalid, place(from), keyword, "there is no anchor " + quoted(fragment));
}

uint32_t Document::find_resource(NodeId from, const char* keyword, std::string_view reference) {
  const uint32_t here = nodes_[from].resource;
  if (reference.starts_with('#') || reference.empty()) return here;
  const std::string uri = join_uri(resources_[here].uri, reference);
  if (const auto it = resource_ids_.find(uri); it != resource_ids_.end()) return it->second;
  auto document = retrieve_(uri);
  if (!document) {
    throw SchemaError(SchemaError::Kind::unsupported, place(from), keyword,
                      "the document " + quoted(uri) + " is neither part of this schema nor in the registry");
  }
  trees_.push_back(std::move(*document));
  return load(trees_.back().root, uri, resources_[here].dialect);
}

NodeId Document::follow(NodeId at, std::string_view pointer, const char* keyword, NodeId origin) {
  const std::string_view whole = pointer;
  // Nodes share values that differ only in annotations, and the pointer may lead into these.
  const Value* here = nodes_[at].value;
  Holds holds = Holds::schema;
  while (!pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string token = unescape_token(pointer.substr(1, end - 1));
    pointer = pointer.substr(end);
    const Value& value = *here;
    const bool is_index = !token.empty() && token.size() < 10 && std::ranges::all_of(token, is_digit);
    const size_t index = is_index && value.is(Value::Type::array) ? std::stoul(token) : value.items.size();
    const auto member = std::ranges::find(value.members, std::string_view(token), &Value::Member::first);
    const bool is_item = index < value.items.size();
    if (!is_item && member == value.members.end()) {
      throw SchemaError(SchemaError::Kind::invalid, place(origin), keyword,
                        "'#" + std::string(whole) + "' leads nowhere: there is no " + quoted(token));
    }
    here = is_item ? &value.items[index] : &member->second;
    holds = pointer.empty() ? Holds::schema : holds_below(holds, is_item ? nullptr : &member->first);
    at = child(at, is_item ? Step{.index = index} : Step{.name = &member->first}, *here, holds);
  }
  return at;
}

}  // namespace constrain::schema
