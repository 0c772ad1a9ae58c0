// The schema documents that belong together: their nodes, resources and references.
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

/// A dynamic scope: which schemas the dynamic anchors stand for. 0 is none: the place of a schema, not the schema as it
/// is reached from somewhere.
using ScopeId = uint32_t;

/// One place of a document, as it is reached.
struct Node {
  enum class Kind : uint8_t {
    schema,
    constant,  ///< a value that is read as `const` of it
    any_of     ///< some of the nodes in `parts` holds
  };
  const json::Value* value = nullptr;
  NodeId parent = 0;      ///< where `step` is seen from; the root of a document is its own parent
  std::string step = {};  ///< reference tokens of RFC 6901, each with its slash
  uint32_t resource = 0;  ///< the innermost `$id` around it
  ScopeId scope = 0;
  Kind kind = Kind::schema;
  std::vector<NodeId> parts = {};
};

/// Finds a document that a reference names and that is not at hand; nothing where there is none.
using Retrieve = std::function<std::optional<json::Value>(const std::string& uri)>;

/// A schema with the documents that it refers to. Nodes are made when asked for, one for each schema and each dynamic
/// scope that it is reached in. Throws SchemaError.
class Document {
 public:
  Document(const json::Value& root, Retrieve retrieve);

  NodeId root();
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  const Dialect& dialect(NodeId id) const { return resources_[nodes_[id].resource].dialect; }

  NodeId child(NodeId parent, const std::string& step, const json::Value& value);
  NodeId constant(NodeId parent, const std::string& step, const json::Value& value);
  NodeId any_of(NodeId parent, std::vector<NodeId> parts);

  /// A schema that nothing satisfies, for what `false` stands for without being written.
  NodeId nothing() const { return kNothing; }

  /// The nodes that the references of a schema name: `$ref`, `$dynamicRef` and `$recursiveRef`.
  std::vector<NodeId> references(NodeId from, const Schema& schema);

  Place place(NodeId id) const;

  /// Everywhere that a node stands: equal schemas of a resource are one node.
  std::vector<Place> places(NodeId id) const;

 private:
  static constexpr NodeId kNothing = 0;
  static constexpr ScopeId kNoScope = 0, kEmptyScope = 1;

  /// What an `$id`, or the root of a document, stands for.
  struct Resource {
    std::string uri;
    NodeId root;
    Dialect dialect;
    std::map<std::string, NodeId> anchors = {};
    std::map<std::string, NodeId> dynamic_anchors = {};  ///< `$recursiveAnchor` is the empty one
  };
  using Scope = std::map<std::string, NodeId>;

  static constexpr size_t kNoIndex = SIZE_MAX;

  /// One step on the way from a node to a schema below it: a keyword, and what of it.
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
  /// Finds the identifiers and anchors of all schemas below one; `path` leads from the node to it.
  void index(NodeId from, std::vector<Step>& path, const json::Value& value);
  void add_anchors(NodeId id);

  NodeId resolve(NodeId from, const char* keyword, const std::string& reference);
  NodeId resolve_dynamically(NodeId from, const char* keyword, const std::string& reference);
  uint32_t find_resource(NodeId from, const char* keyword, const std::string& reference);
  NodeId follow(NodeId at, std::string_view pointer, const char* keyword, NodeId origin);

  Retrieve retrieve_;
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
  std::map<NodeId, std::string> documents_;                       // the URIs of roots other than the first
  std::map<std::vector<NodeId>, NodeId> unions_;
  std::vector<const Scope*> scopes_;
  std::map<Scope, ScopeId> scope_ids_;
};

}  // namespace constrain::schema
