// JSON Schema to its normal form: Boolean combinations become unions of cells.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "engine/compiled_grammar.h"
#include "engine/schema/cells.h"
#include "engine/schema/document.h"
#include "engine/schema/report.h"

namespace constrain::schema {

/// Reads schemas into cells, each node once. Throws SchemaError and ResourceLimit.
class Normaliser {
 public:
  Normaliser(Document& document, Conjunctions& conjunctions, Report& report, bool lenient, const Limits& limits)
      : document_(document), conjunctions_(conjunctions), report_(report), lenient_(lenient), limits_(limits) {}

  Cells conjunction(ConjunctionId id);

 private:
  using Value = json::Value;

  const Cells& node(NodeId id);
  Cells expand(NodeId id);
  Cells alternatives(NodeId id, const char* keyword, const Value& list);

  void read_types(NodeId id, const Value& schema, Cells& cells);
  void read_numbers(NodeId id, const Value& schema, NumberCell& cell);
  void read_strings(NodeId id, const Value& schema, StringCell& cell);
  void read_arrays(NodeId id, const Value& schema, ArrayCell& cell);
  void read_objects(NodeId id, const Value& schema, ObjectCell& cell);
  void refuse_unsupported(NodeId id, const Value& schema);

  Cells value(NodeId id, const Value& value);
  ConjunctionId subschema(NodeId id, std::string step, const Value& schema);
  Content pattern(NodeId id, const char* keyword, const std::string& pattern);
  std::optional<uint64_t> count(NodeId id, const Value& schema, const char* keyword);
  const Value* number(NodeId id, const Value& schema, const char* keyword);
  void enforced(NodeId id, const char* keyword) { report_.add(report_.enforced, document_.pointer(id), keyword); }
  [[noreturn]] void invalid(NodeId id, const char* keyword, const std::string& reason) const;

  Document& document_;
  Conjunctions& conjunctions_;
  Report& report_;
  bool lenient_;
  Limits limits_;
  std::unordered_map<NodeId, Cells> nodes_;
  std::unordered_set<NodeId> under_way_;
  uint64_t cells_ = 0;
};

}  // namespace constrain::schema
