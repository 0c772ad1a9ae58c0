// JSON Schema to its normal form: Boolean combinations become unions of cells.
#pragma once

#include <map>
#include <set>

#include "engine/compiled_grammar.h"
#include "engine/regex.h"
#include "engine/schema/cells.h"
#include "engine/schema/document.h"
#include "engine/schema/report.h"

namespace constrain::schema {

/// Reads schemas into cells, each literal once. Negation is pushed down to the keywords, as in Attouche et al.,
/// "Witness generation for JSON Schema" (2022): the negation of a keyword that speaks of one type is a condition on
/// that type, and that of a conjunction the union of the negations. Throws SchemaError and ResourceLimit.
class Normaliser {
 public:
  Normaliser(Document& document, Conjunctions& conjunctions, Report& report, bool lenient, const Limits& limits)
      : document_(document), conjunctions_(conjunctions), report_(report), lenient_(lenient), limits_(limits) {}

  const Cells& conjunction(ConjunctionId id);

  /// Strings that satisfy all conditions of a cell.
  static AutomatonPtr content(const StringCell& cell);

  /// Keys that a `propertyNames` schema allows.
  Content key_language(ConjunctionId id);

 private:
  using Value = json::Value;

  const Cells& literal(Literal literal);
  Cells expand(NodeId id);
  Cells negate(NodeId id);

  // Positive keywords: conditions on one cell of each type.
  void read_types(NodeId id, const Value& schema, Cells& cells);
  void read_numbers(NodeId id, const Value& schema, NumberCell& cell);
  void read_strings(NodeId id, const Value& schema, StringCell& cell);
  void read_arrays(NodeId id, const Value& schema, ArrayCell& cell);
  void read_objects(NodeId id, const Value& schema, ObjectCell& cell);
  void read_dependencies(NodeId id, const Value& schema, Cells& cells);
  void refuse_unsupported(NodeId id, const Value& schema);

  // Combinators.
  Cells any_of(NodeId id, const char* keyword, const Value& list, bool negated);
  Cells all_of(NodeId id, const char* keyword, const Value& list, bool negated);
  Cells one_of(NodeId id, const Value& list);
  Cells not_one_of(NodeId id, const Value& list);
  Cells if_then_else(NodeId id, const Value& schema, bool negated);

  // Negative keywords: everything of one type that violates them.
  void negate_types(NodeId id, const Value& schema, Cells& out);
  void negate_numbers(NodeId id, const Value& schema, Cells& out);
  void negate_strings(NodeId id, const Value& schema, Cells& out);
  void negate_arrays(NodeId id, const Value& schema, Cells& out);
  void negate_objects(NodeId id, const Value& schema, Cells& out);
  void negate_dependencies(NodeId id, const Value& schema, Cells& out);

  Cells values(NodeId id, const char* keyword, const Value& list);
  Cells value(NodeId id, const Value& value);
  Cells other_than(NodeId id, const Value& value);

  ConjunctionId subschema(NodeId id, std::string step, const Value& schema, bool negated = false);
  ConjunctionId nothing() { return conjunctions_.intern({{document_.nothing()}}); }
  NodeId part(NodeId id, const char* keyword, const Value& schema) { return document_.child(id, keyword, schema); }
  /// Nothing where the pattern does not compile, and may be left out.
  std::optional<Content> pattern(NodeId id, const char* keyword, const std::string& pattern, Classes classes);
  std::optional<Content> doubtful_keys(NodeId id, const std::string& text, const Content& keys);
  std::optional<uint64_t> count(NodeId id, const Value& schema, const char* keyword);
  const Value* number(NodeId id, const Value& schema, const char* keyword);
  const Value* object(NodeId id, const Value& schema, const char* keyword);

  /// Drops cells that nothing satisfies, as far as `depth` levels of required members and items show it.
  void prune(Cells& cells, int depth);
  bool empty(const ObjectCell& cell, int depth);
  bool empty(const ArrayCell& cell, int depth);
  bool empty(ConjunctionId id, int depth);

  void enforced(NodeId id, const char* keyword) { report_.add(report_.enforced, document_.pointer(id), keyword); }
  [[noreturn]] void invalid(NodeId id, const char* keyword, const std::string& reason) const;
  [[noreturn]] void unsupported(NodeId id, const char* keyword, const std::string& reason) const;

  /// What satisfies both, without the cells that nothing satisfies. Throws ResourceLimit before a product grows too
  /// large.
  Cells meet(const Cells& a, const Cells& b, NodeId id);
  void charge(const Cells& cells, NodeId id);

  Document& document_;
  Conjunctions& conjunctions_;
  Report& report_;
  bool lenient_;
  Limits limits_;
  std::map<Literal, Cells> literals_;
  std::set<Literal> under_way_;
  std::map<ConjunctionId, Cells> known_;
  std::set<ConjunctionId> conjunctions_under_way_;
  std::map<ConjunctionId, int> inhabited_;  // up to which depth no contradiction was found; kEmpty where one was
  int speculating_ = 0;                     // judging whether a cell is empty, which may need what is still being read
  uint64_t cells_ = 0, pairs_ = 0;
};

/// The value that `properties` and its kin give to a key.
ConjunctionId value_of(const ObjectCell& cell, const std::string& name, Conjunctions& conjunctions);

}  // namespace constrain::schema
