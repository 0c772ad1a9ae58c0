// A JSON Schema document: its nodes, dialect and references.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/json/value.h"

namespace constrain::schema {

using NodeId = uint32_t;

/// Which edition of JSON Schema a document is written in.
enum class Dialect { draft4, draft6, draft7, draft2019, draft2020 };

/// One place of the document that is read as a schema, or a value that is read as `const` of it.
struct Node {
  const json::Value* value = nullptr;
  NodeId parent = 0;
  std::string step;       ///< how the parent names it: a reference token of RFC 6901
  uint32_t resource = 0;  ///< the innermost `$id` around it
  bool constant = false;
};

/// Nodes are made when asked for, one for each place. Throws SchemaError.
class Document {
 public:
  explicit Document(const json::Value& root);

  Dialect dialect() const { return dialect_; }
  NodeId root() const { return 0; }
  const Node& operator[](NodeId id) const { return nodes_[id]; }

  NodeId child(NodeId parent, std::string step, const json::Value& value);
  NodeId constant(NodeId parent, std::string step, const json::Value& value);

  /// A schema that nothing satisfies, for what `false` stands for without being written.
  NodeId nothing();

  /// The node that a `$ref` of `from` names.
  NodeId resolve(NodeId from, const std::string& reference);

  /// JSON pointer of a node.
  std::string pointer(NodeId id) const;

 private:
  struct Resource {
    const json::Value* root;
    NodeId node;
    std::string uri;
  };

  NodeId add(Node node);
  NodeId follow(NodeId from, std::string_view pointer, const std::string& reference, NodeId origin);
  void index(NodeId id);
  std::string id_of(const json::Value& value) const;

  Dialect dialect_ = Dialect::draft2020;
  std::vector<Node> nodes_;
  std::map<std::pair<const json::Value*, bool>, NodeId> by_value_;
  std::vector<Resource> resources_;
  std::map<std::pair<uint32_t, std::string>, NodeId> anchors_;
  bool indexed_ = false;
  json::Value false_;
};

/// RFC 3986 section 5.2: `reference` as seen from `base`, without its fragment.
std::string join_uri(std::string_view base, std::string_view reference);

}  // namespace constrain::schema
