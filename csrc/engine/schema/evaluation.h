// Evaluated members and items of schemas, the basis of `unevaluatedProperties` and `unevaluatedItems`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/schema/cells.h"
#include "engine/schema/normalise.h"

namespace constrain::schema {

/// Documents with the same evaluated members and items.
struct Evaluated {
  Cells documents;
  bool all = false;
  std::set<std::string_view> names = {};
  std::vector<Content> patterns = {};
  uint64_t items = 0;                                                     ///< the first items, this many
  std::vector<NodeId> contained = {};                                     ///< and items that satisfy one of these
  std::vector<std::pair<std::string_view, ConjunctionId>> implying = {};  ///< and members with these values
};

/// Partitions documents by which in-place subschemas hold, as far as these evaluate anything.
class Evaluation {
 public:
  enum class Of { members, items };
  enum class Mode {
    enough,  ///< a document may also be in a part that has less evaluated, which needs no negations
    exact    ///< every document is in one part
  };

  Evaluation(Normaliser& normaliser, Of of, Mode mode) : normaliser_(normaliser), of_(of), mode_(mode) {}

  /// Partitions `documents`, which satisfy the schema except for its own `unevaluated...`.
  std::vector<Evaluated> split(NodeId id, const Schema& schema, Cells documents);

 private:
  using Parts = std::vector<Evaluated>;
  using Value = json::Value;

  Parts refine(NodeId id, Parts parts);
  Parts through(NodeId id, const Schema& schema, Parts parts);
  Parts through_others(NodeId id, const Schema& schema, Parts parts);
  Parts any_of(NodeId id, const Value& list, Parts parts);
  Parts one_of(NodeId id, const Value& list, Parts parts);
  Parts condition(NodeId id, const Schema& schema, Parts parts);
  Parts dependents(NodeId id, const Value& schemas, Parts parts);

  /// Where nothing may stay unevaluated, documents need not be told apart by the branches of `anyOf` if each holds
  /// wherever there are members, with certain values, that only it evaluates. Adds these members; false if that is not
  /// so.
  bool add_implying(NodeId id, const Value& list, Parts& parts);
  /// The members that a branch evaluates, if it holds wherever there is one of them and all have these values.
  std::optional<std::vector<std::pair<std::string_view, ConjunctionId>>> implying(NodeId branch);

  /// The documents that also satisfy a literal.
  Parts where(Literal literal, const Parts& parts);
  Parts among(const Cells& cells, const Parts& parts);
  /// The documents that violate it, if that matters.
  Parts where_not(NodeId id, const Parts& parts) { return mode_ == Mode::exact ? where({id, true}, parts) : parts; }

  bool evaluates(NodeId id);
  bool evaluates_itself(const Schema& schema) const;
  std::vector<NodeId> in_place(NodeId id, const Schema& schema);
  void add_members(NodeId id, const Schema& schema, Parts& parts);
  void add_items(NodeId id, const Schema& schema, Parts& parts);

  Normaliser& normaliser_;
  Of of_;
  Mode mode_;
  std::map<NodeId, bool> evaluates_;
  std::set<NodeId> under_way_;
};

}  // namespace constrain::schema
