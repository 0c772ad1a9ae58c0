// Schema documents with their nodes, resources and references.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/base/errors.h"
#include "engine/json/value.h"
#include "engine/schema/dialect.h"
#include "engine/schema/equal_values.h"

namespace constrain::schema {

using NodeId = uint32_t;

/// A dynamic scope: the schemas of dynamic anchors. 0 is none: the place of a schema, independent of how it is reached.
using ScopeId = uint32_t;

/// A place of a document, and the way it was reached.
struct Node {
  enum class Kind : uint8_t {
    schema,
    constant,  ///< a value, as by `const`
    any_of     ///< the union of the nodes in `parts`
  };
  const json::Value* value = nullptr;
  NodeId parent = 0;      ///< base of `step`; the root of a document is its own parent
  std::string step = {};  ///< reference tokens of RFC 6901, each with its slash
  uint32_t resource = 0;  ///< resource of the innermost `$id`
  ScopeId scope = 0;
  Kind kind = Kind::schema;
  std::vector<NodeId> parts = {};
};

/// Retrieves a document that a reference names; nothing if there is none.
using Retrieve = std::function<std::optional<json::Value>(const std::string& uri)>;

/// A schema with the documents it refers to. Nodes are created on demand, one for each schema and dynamic scope. Throws
/// SchemaError.
class Document {
 public:
  Document(const json::Value& root, Retrieve retrieve, Formats formats);

  NodeId root();
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  const Dialect& dialect(NodeId id) const { return resources_[nodes_[id].resource].dialect; }

  NodeId child(NodeId parent, const std::string& step, const json::Value& value);
  NodeId constant(NodeId parent, const std::string& step, const json::Value& value);
  NodeId any_of(NodeId parent, std::vector<NodeId> parts);

  /// An unsatisfiable schema, for an implicit `false`.
  NodeId nothing() const { return kNothing; }

  /// Targets of a schema's `$ref`, `$dynamicRef` and `$recursiveRef`.
  std::vector<NodeId> references(NodeId from, const Schema& schema);

  Place place(NodeId id) const;

  /// All places of a node: equal schemas of a resource are one node.
  std::vector<Place> places(NodeId id) const;

 private:
  static constexpr NodeId kNothing = 0;
  static constexpr ScopeId kNoScope = 0, kEmptyScope = 1;

  /// A resource: the root of a document, or a schema with `$id`.
  struct Resource {
    std::string uri;
    NodeId root;
    Dialect dialect;
    std::map<std::string, NodeId> anchors = {};
    std::map<std::string, NodeId> dynamic_anchors = {};  ///< anchors; `$recursiveAnchor` is the empty one
  };
  using Scope = std::map<std::string, NodeId>;

  static constexpr size_t kNoIndex = SIZE_MAX;

  /// A step from a node to a subschema: a keyword, and a member or item of it.
  struct Step {
    std::string_view keyword;
    const std::string* name;  ///< of a member
    size_t index;             ///< of an item, or kNoIndex
    const json::Value* value;
    std::string text() const;
  };

  using Key = std::tuple<const json::Value*, Node::Kind, ScopeId, uint32_t>;

  NodeId intern(Node node);
  NodeId in_scope(NodeId place, ScopeId scope);
  ScopeId intern(Scope scope);
  ScopeId enter(ScopeId scope, uint32_t resource);

  uint32_t load(const json::Value& root, const std::string& uri, Dialect inherited);
  uint32_t add_resource(NodeId root, std::string uri, Dialect dialect);
  Dialect dialect_of(NodeId root, Dialect inherited);
  /// Indexes the identifiers and anchors of all schemas below a node; `path` leads from the node to the schema.
  void index(NodeId from, std::vector<Step>& path, const json::Value& value);
  void add_anchors(NodeId id);

  NodeId resolve(NodeId from, const char* keyword, const std::string& reference);
  NodeId resolve_dynamically(NodeId from, const char* keyword, const std::string& reference);
  uint32_t find_resource(NodeId from, const char* keyword, const std::string& reference);
  NodeId follow(NodeId at, std::string_view pointer, const char* keyword, NodeId origin);

  Retrieve retrieve_;
  Formats formats_;
  std::deque<json::Value> retrieved_;
  json::Value false_;
  std::deque<Node> nodes_;
  EqualValues equal_;
  std::map<Key, NodeId> ids_;
  std::set<const json::Value*> placed_;
  std::multimap<std::pair<const json::Value*, uint32_t>, std::pair<NodeId, std::string>> elsewhere_;  // by first value
  std::vector<Resource> resources_;
  std::map<std::string, uint32_t> resource_ids_;                  // by URI
  std::unordered_map<const json::Value*, uint32_t> resource_of_;  // by root
  std::map<NodeId, std::string> documents_;                       // URIs of roots other than the first
  std::map<std::vector<NodeId>, NodeId> unions_;
  std::vector<const Scope*> scopes_;
  std::map<Scope, ScopeId> scope_ids_;
};

}  // namespace constrain::schema
