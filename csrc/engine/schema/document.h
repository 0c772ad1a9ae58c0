// Schema documents with their nodes, resources and references.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory_resource>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/base/errors.h"
#include "engine/json/value.h"
#include "engine/schema/equal_values.h"
#include "engine/schema/keyword_table.h"
#include "engine/schema/steps.h"

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
  NodeId parent = 0;  ///< base of `step`; the root of a document is its own parent
  Step step = {};
  uint32_t resource = 0;  ///< resource of the innermost `$id`
  ScopeId scope = 0;
  Kind kind = Kind::schema;
  std::vector<NodeId> parts = {};
};

/// Retrieves a document that a reference names; nothing if there is none.
using Retrieve = std::function<std::optional<json::Tree>(const std::string& uri)>;

/// A schema with the documents it refers to. Nodes are created on demand, one for each schema and dynamic scope. Throws
/// SchemaError.
class Document {
 public:
  /// `retrieve` is called until `close`.
  Document(json::Tree schema, Retrieve retrieve, Formats formats);
  void close() { retrieve_ = nullptr; }

  const json::Value& schema() const { return trees_.front().root; }
  NodeId root();
  const Node& operator[](NodeId id) const { return nodes_[id]; }
  const Dialect& dialect(NodeId id) const { return resources_[nodes_[id].resource].dialect; }

  /// The node of a schema below another; of what may hold schemas, if `holds` says so.
  NodeId child(NodeId parent, const Step& step, const json::Value& value, Holds holds = Holds::schema);
  NodeId constant(NodeId parent, const Step& step, const json::Value& value);
  NodeId any_of(NodeId parent, std::vector<NodeId> parts);

  /// An unsatisfiable schema, for an implicit `false`.
  NodeId nothing() const { return kNothing; }

  /// Targets of a schema's `$ref`, `$dynamicRef` and `$recursiveRef`.
  std::vector<NodeId> references(NodeId from, const Schema& schema);

  Place place(NodeId id) const;

  /// All places of a node: schemas of a resource that differ only in annotations are one node.
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

  /// A schema below a node, with the way to it from the schema above.
  struct Below {
    Step step;
    const json::Value* value;
  };

  using Key = std::tuple<const json::Value*, Node::Kind, ScopeId, uint32_t>;

  NodeId intern(Node node, Holds holds = Holds::schema);
  NodeId in_scope(NodeId place, ScopeId scope);
  ScopeId intern(Scope scope);
  ScopeId enter(ScopeId scope, uint32_t resource);

  uint32_t load(const json::Value& root, const std::string& uri, Dialect inherited);
  uint32_t add_resource(NodeId root, std::string uri, Dialect dialect);
  Dialect dialect_of(NodeId root, Dialect inherited);
  /// Indexes the identifiers and anchors of all schemas below a node; `path` leads from the node to the schema.
  void index(NodeId from, std::vector<Below>& path, const json::Value& value);
  void add_anchors(NodeId id);

  NodeId resolve(NodeId from, const char* keyword, std::string_view reference);
  NodeId resolve_dynamically(NodeId from, const char* keyword, std::string_view reference);
  uint32_t find_resource(NodeId from, const char* keyword, std::string_view reference);
  NodeId follow(NodeId at, std::string_view pointer, const char* keyword, NodeId origin);

  Retrieve retrieve_;
  Formats formats_;
  // The tables have many small entries, which are freed together; those of most schemas need no memory of their own.
  std::array<std::byte, 4096> room_;
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};
  std::pmr::deque<json::Tree> trees_{&memory_};  // the schema, and what was retrieved
  std::pmr::deque<Node> nodes_{&memory_};
  EqualValues equal_{&memory_};
  std::pmr::map<Key, NodeId> ids_{&memory_};
  std::pmr::set<const json::Value*> placed_{&memory_};
  std::multimap<std::pair<const json::Value*, uint32_t>, std::pair<NodeId, Step>> elsewhere_;  // by first value
  std::pmr::vector<Resource> resources_{&memory_};
  std::pmr::map<std::string, uint32_t> resource_ids_{&memory_};        // by URI
  std::pmr::map<const json::Value*, uint32_t> resource_of_{&memory_};  // by root
  std::map<NodeId, std::string> documents_;                            // URIs of roots other than the first
  std::map<std::vector<NodeId>, NodeId> unions_;
  std::pmr::vector<const Scope*> scopes_{&memory_};
  std::pmr::map<Scope, ScopeId> scope_ids_{&memory_};
};

}  // namespace constrain::schema
