// JSON Schema to its normal form: Boolean combinations become unions of cells.
#pragma once

#include <map>
#include <set>

#include "engine/automata/regex/regex.h"
#include "engine/grammar/parse_table.h"
#include "engine/schema/cells.h"
#include "engine/schema/document.h"
#include "engine/schema/report.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

// What a report says of values that are left out.
inline constexpr const char* kPlainIntegers = "integers are written without fraction and exponent";
inline constexpr const char* kAgreedTexts = "only texts that all common validators accept";

/// Reads schemas into cells, each literal once. Negation is pushed down to the keywords, as in Attouche et al.,
/// "Witness generation for JSON Schema" (2022): the negation of a keyword that speaks of one type is a condition on
/// that type, and that of a conjunction the union of the negations. Throws SchemaError and ResourceLimit.
class Normaliser {
 public:
  /// `sources` are the texts that `x-verbatim` names.
  Normaliser(Document& document, Conjunctions& conjunctions, Findings& findings, bool lenient, const Limits& limits,
             const std::map<std::string, std::string>& sources)
      : document_(document),
        conjunctions_(conjunctions),
        findings_(findings),
        lenient_(lenient),
        limits_(limits),
        sources_(sources) {}

  const Cells& conjunction(ConjunctionId id);

  /// Strings that satisfy all conditions of a cell.
  static AutomatonPtr content(const StringCell& cell);

  /// Keys that a `propertyNames` schema allows.
  Content key_language(ConjunctionId id);

  /// Whether nothing satisfies a conjunction, as far as `depth` levels of required members and items show it.
  bool empty(ConjunctionId id, int depth = kPruneDepth);

  /// Where a conjunction without cells lost the last one.
  struct Conflict {
    NodeId node;
    const char* keyword = "";
    ConjunctionId within = 0;  ///< has no instances either, and is needed
  };
  Conflict conflict(ConjunctionId id) const;

 private:
  friend class Evaluation;
  using Value = json::Value;

  /// Thrown where a judgement needs a literal that is still being read.
  struct NotYet {};

  const Cells& literal(Literal literal);
  Schema read(NodeId id);
  Cells expand(NodeId id);
  /// All that a schema asks for but for what is unevaluated.
  Cells conditions(NodeId id, const Schema& schema);
  Cells negate(NodeId id);

  // Positive keywords: conditions on one cell of each type.
  void read_types(NodeId id, const Schema& schema, Cells& cells);
  void read_numbers(NodeId id, const Schema& schema, NumberCell& cell);
  void read_strings(NodeId id, const Schema& schema, StringCell& cell);
  void read_arrays(NodeId id, const Schema& schema, ArrayCell& cell);
  void read_objects(NodeId id, const Schema& schema, ObjectCell& cell);
  void read_dependencies(NodeId id, const Schema& schema, Cells& cells);

  // Combinators.
  Cells any_of(NodeId id, const char* keyword, const Value& list, bool negated);
  Cells all_of(NodeId id, const char* keyword, const Value& list, bool negated, Cells cells);
  Cells one_of(NodeId id, const Value& list, const Cells& cells);
  Cells not_one_of(NodeId id, const Value& list);
  Cells if_then_else(NodeId id, const Schema& schema, bool negated, const Cells& cells);
  /// The cells, as far as they do not satisfy a schema.
  Cells without(Cells cells, NodeId schema);

  // `unevaluatedProperties` and `unevaluatedItems`; see evaluation.h.
  Cells where_unevaluated(NodeId id, const Schema& schema, Cells cells);
  void negate_unevaluated(NodeId id, const Schema& schema, Cells& out);

  // Negative keywords: everything of one type that violates them.
  void negate_types(NodeId id, const Schema& schema, Cells& out);
  void negate_numbers(NodeId id, const Schema& schema, Cells& out);
  void negate_strings(NodeId id, const Schema& schema, Cells& out);
  void negate_arrays(NodeId id, const Schema& schema, Cells& out);
  void negate_objects(NodeId id, const Schema& schema, Cells& out);
  void negate_property(NodeId id, const std::string& name, const Value& value, Cells& out);
  /// Takes in what violates the discriminators of a schema, and leaves to the other violations the documents where they
  /// hold: not (A and B) is not A, or A and not B. A cell then excludes all branches of a union but one.
  void discriminate(NodeId id, const Schema& schema, Cells& out);
  void negate_dependencies(NodeId id, const Schema& schema, Cells& out);

  Cells values(NodeId id, const char* keyword, const Value& list);
  Cells constant_value(NodeId id, const Value& value);
  Cells value(NodeId id, const Value& value);
  Cells other_than(NodeId id, const Value& value);
  static Cells other_strings(const std::vector<std::string>& words);

  ConjunctionId subschema(NodeId id, std::string step, const Value& schema, bool negated = false);
  ConjunctionId nothing() { return conjunctions_.intern({{document_.nothing()}}); }
  NodeId part(NodeId id, const char* keyword, const Value& schema) { return document_.child(id, keyword, schema); }
  NodeId item(NodeId id, const char* keyword, const Value& list, size_t index) {
    return document_.child(id, item_step(keyword, index), list.items[index]);
  }
  /// Nothing where the pattern does not compile, and may be left out.
  std::optional<Content> pattern(NodeId id, const char* keyword, const std::string& pattern, Classes classes);
  std::optional<Content> doubtful_keys(NodeId id, const std::string& text, const Content& keys);
  Content verbatim(NodeId id, const Value& value);
  std::optional<uint64_t> count(NodeId id, const Schema& schema, const char* keyword);
  const Value* number(NodeId id, const Schema& schema, const char* keyword);
  const Value* object(NodeId id, const Schema& schema, const char* keyword);
  const Value* string(NodeId id, const Schema& schema, const char* keyword);

  /// Drops cells that nothing satisfies, as far as `depth` levels of required members and items show it. Returns what
  /// was needed last and has no instances, if anything.
  ConjunctionId prune(Cells& cells, int depth);
  /// What a cell needs that has no instances; 0 where the cell contradicts itself.
  std::optional<ConjunctionId> contradiction(const StringCell& cell, int depth);
  std::optional<ConjunctionId> contradiction(const ArrayCell& cell, int depth);
  std::optional<ConjunctionId> contradiction(const ObjectCell& cell, int depth);

  void report(NodeId id, const Schema& schema);
  /// Leaves a keyword out if that is wished for, and else refuses the schema.
  void leave_out(NodeId id, const char* keyword, const std::string& reason);
  [[noreturn]] void invalid(NodeId id, const char* keyword, const std::string& reason) const;
  [[noreturn]] void unsupported(NodeId id, const char* keyword, const std::string& reason) const;

  /// What satisfies both, without the cells that nothing satisfies. Throws ResourceLimit before a product grows too
  /// large.
  Cells meet(const Cells& a, const Cells& b);
  /// The cells, as far as they satisfy a literal.
  Cells satisfying(const Cells& cells, Literal literal);
  void charge(const Cells& cells);

  Document& document_;
  Conjunctions& conjunctions_;
  Findings& findings_;
  bool lenient_;
  Limits limits_;
  const std::map<std::string, std::string>& sources_;
  std::map<std::string, Content> verbatim_;  // by their ids
  std::map<Literal, Cells> literals_;
  std::set<Literal> under_way_;
  std::map<ConjunctionId, Cells> known_;
  std::set<ConjunctionId> conjunctions_under_way_;
  std::map<Literal, Conflict> conflicts_;
  std::map<ConjunctionId, Conflict> conjunction_conflicts_;
  ConjunctionId blame_ = 0;  // why the last `meet` dropped a cell
  std::set<NodeId> reported_, left_out_;
  std::map<ConjunctionId, int> inhabited_;  // up to which depth no contradiction was found; kEmpty where one was
  int speculating_ = 0;                     // judging whether a cell is empty, which may need what is still being read
  uint64_t cells_ = 0, pairs_ = 0;
};

}  // namespace constrain::schema
