// Normalisation of JSON Schema: Boolean combinations to unions of cells.
#pragma once

#include <map>
#include <memory_resource>
#include <set>

#include "engine/automata/regex/regex.h"
#include "engine/grammar/parse_table.h"
#include "engine/schema/cells.h"
#include "engine/schema/document.h"
#include "engine/schema/report.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

// Text of the report for dropped values.
inline constexpr const char* kPlainIntegers = "integers are written without exponent and fraction";
inline constexpr const char* kPointIntegers = "integers are written without exponent, and with no fraction but '.0'";
inline constexpr const char* kAgreedTexts = "only texts that all common validators accept";

/// Converts schemas to cells, each literal once. Negation is pushed down to the keywords, as in Attouche et al.,
/// "Witness generation for JSON Schema" (2022): the negation of a keyword about one type is a condition on that type,
/// and that of a conjunction is the union of the negations. Throws SchemaError and ResourceLimit.
class Normaliser {
 public:
  /// `sources` are the texts for `x-verbatim`. What is allocated from `memory` is not freed before the end.
  Normaliser(Document& document, Conjunctions& conjunctions, Findings& findings, bool plain_integers, bool lenient,
             const Limits& limits, const std::map<std::string, std::string>& sources, std::pmr::memory_resource* memory)
      : document_(document),
        conjunctions_(conjunctions),
        findings_(findings),
        plain_integers_(plain_integers),
        lenient_(lenient),
        limits_(limits),
        sources_(sources),
        literals_(memory),
        cache_(memory),
        conflicts_(memory),
        conjunction_conflicts_(memory),
        reported_(memory),
        inhabited_(memory) {}

  const Cells& conjunction(ConjunctionId id);

  /// Intersects the string conditions of a cell.
  static AutomatonPtr content(const StringCell& cell);

  /// Keys that a `propertyNames` schema allows.
  Content key_language(ConjunctionId id);

  /// True if a conjunction is found empty within `depth` levels of required members and items.
  bool empty(ConjunctionId id, int depth = kPruneDepth);

  /// The place where a conjunction lost its last cell.
  struct Conflict {
    NodeId node;
    const char* keyword = "";
    ConjunctionId within = 0;  ///< a required value without instances
  };
  Conflict conflict(ConjunctionId id) const;

 private:
  friend class Evaluation;
  using Value = json::Value;

  /// Thrown if a decision needs a literal that is still being read.
  struct NotYet {};

  const Cells& literal(Literal literal);
  /// The cells of a conjunction if they have been computed, else null.
  const Cells* known(ConjunctionId id) const;
  Schema read(NodeId id);
  Cells expand(NodeId id);
  /// All conditions of a schema except those on unevaluated values.
  Cells conditions(NodeId id, const Schema& schema);
  Cells negate(NodeId id);

  // Positive keywords: conditions on one cell of each type.
  Cells of_types(NodeId id, const Schema& schema);
  void read_numbers(NodeId id, const Schema& schema, NumberCell& cell);
  void read_strings(NodeId id, const Schema& schema, StringCell& cell);
  void read_arrays(NodeId id, const Schema& schema, ArrayCell& cell);
  void read_objects(NodeId id, const Schema& schema, ObjectCell& cell);
  void read_dependencies(NodeId id, const Schema& schema, Cells& cells);

  // Combinators.
  Cells any_of(NodeId id, const char* keyword, const Value& list, bool negated);
  Cells all_of(NodeId id, const char* keyword, const Value& list, bool negated, Cells cells);
  Cells one_of(NodeId id, const Value& list, const Cells& cells);
  /// The values of a member, if all objects have it, and its values are listed and known.
  std::optional<std::vector<std::string>> values_of_member(const Cells& cells, std::string_view name);
  Cells not_one_of(NodeId id, const Value& list);
  Cells if_then_else(NodeId id, const Schema& schema, bool negated, const Cells& cells);
  /// Removes the documents that satisfy a schema from cells.
  Cells without(Cells cells, NodeId schema);

  // `unevaluatedProperties` and `unevaluatedItems`; see evaluation.h.
  Cells where_unevaluated(NodeId id, const Schema& schema, Cells cells);
  void negate_unevaluated(NodeId id, const Schema& schema, Cells& out);

  // Negative keywords: all violations of one type.
  void negate_types(NodeId id, const Schema& schema, Cells& out);
  void negate_numbers(NodeId id, const Schema& schema, Cells& out);
  void negate_strings(NodeId id, const Schema& schema, Cells& out);
  void negate_arrays(NodeId id, const Schema& schema, Cells& out);
  void negate_objects(NodeId id, const Schema& schema, Cells& out);
  void negate_property(NodeId id, const Schema& schema, const std::string_view& name, const Value& value, Cells& out);
  /// Separates the violations of a schema's discriminators from its other violations, which then assume that these
  /// hold: not (A and B) is not A, or A and not B. A cell thus excludes all branches of a union but one.
  void discriminate(NodeId id, const Schema& schema, Cells& out);
  void negate_dependencies(NodeId id, const Schema& schema, Cells& out);

  Cells values(NodeId id, const char* keyword, const Value& list);
  Cells constant_value(NodeId id, const Value& value);
  Cells value(NodeId id, const Value& value);
  Cells other_than(NodeId id, const Value& value);
  uint32_t digits_with_point() const { return plain_integers_ ? 0 : NumberRange().max_digits_with_point; }
  void report_integers(NodeId id, const char* keyword) {
    findings_.narrowed(id, keyword, plain_integers_ ? kPlainIntegers : kPointIntegers);
  }
  static Cells other_strings(const std::vector<std::string_view>& words);

  ConjunctionId subschema(NodeId id, const Step& step, const Value& schema, bool negated = false);
  ConjunctionId nothing() { return conjunctions_.single({document_.nothing()}); }
  NodeId part(NodeId id, const char* keyword, const Value& schema) { return document_.child(id, {keyword}, schema); }
  NodeId item(NodeId id, const char* keyword, const Value& list, size_t index) {
    return document_.child(id, item_step(keyword, index), list.items[index]);
  }
  /// Compiles a pattern; nothing if that fails and the keyword may be left out.
  std::optional<Content> pattern(NodeId id, const char* keyword, std::string_view pattern, Classes classes);
  std::optional<Content> doubtful_keys(NodeId id, std::string_view text, const Content& keys);
  Content verbatim(NodeId id, const Value& value);
  std::optional<uint64_t> count(NodeId id, const Schema& schema, const char* keyword);
  const Value* number(NodeId id, const Schema& schema, const char* keyword);
  const Value* object(NodeId id, const Schema& schema, const char* keyword);
  const Value* string(NodeId id, const Schema& schema, const char* keyword);

  /// Drops cells found empty within `depth` levels of required members and items. Returns the last required value
  /// without instances, if any.
  ConjunctionId prune(Cells& cells, int depth);
  /// True if some cell has no contradiction within `depth` levels.
  bool has_values(const Cells& cells, int depth);
  /// A required value of a cell that has no instances; 0 if the cell contradicts itself.
  std::optional<ConjunctionId> contradiction(const StringCell& cell, int depth);
  std::optional<ConjunctionId> contradiction(const ArrayCell& cell, int depth);
  std::optional<ConjunctionId> contradiction(const ObjectCell& cell, int depth);

  /// Leaves a keyword out in lenient mode, else refuses the schema.
  void leave_out(NodeId id, const char* keyword, const std::string& reason);
  [[noreturn]] void invalid(NodeId id, const char* keyword, const std::string& reason) const;
  [[noreturn]] void unsupported(NodeId id, const char* keyword, const std::string& reason) const;

  /// Intersection without empty cells. Throws ResourceLimit before a product grows too large.
  Cells meet(const Cells& a, const Cells& b);
  /// Intersects cells with a literal.
  Cells satisfying(const Cells& cells, Literal literal);
  void charge(const Cells& cells);
  [[noreturn]] void refuse_cells() const;

  Document& document_;
  Conjunctions& conjunctions_;
  Findings& findings_;
  bool plain_integers_, lenient_;
  Limits limits_;
  const std::map<std::string, std::string>& sources_;
  std::map<std::string, Content> verbatim_;  // by their ids
  std::pmr::map<Literal, Cells> literals_;
  std::vector<Literal> under_way_;
  std::pmr::map<ConjunctionId, Cells> cache_;  // of several literals
  std::vector<ConjunctionId> conjunctions_under_way_;
  std::pmr::map<Literal, Conflict> conflicts_;
  std::pmr::map<ConjunctionId, Conflict> conjunction_conflicts_;
  ConjunctionId blame_ = 0;          // why the last `meet` dropped a cell
  std::pmr::vector<bool> reported_;  // by node
  std::set<NodeId> left_out_;
  std::pmr::map<ConjunctionId, int> inhabited_;  // greatest depth without a contradiction; kEmpty if there was one
  int speculating_ =
      0;  // greater than 0 while testing whether a cell is empty, which may need a literal that is still being read
  uint64_t cells_ = 0, pairs_ = 0;
};

}  // namespace constrain::schema
