// What the subschemas of a schema look at: the ground of `unevaluatedProperties` and `unevaluatedItems`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/schema/cells.h"
#include "engine/schema/normalise.h"

namespace constrain::schema {

/// Documents of which the same members, or the same items, were evaluated.
struct Evaluated {
  Cells documents;
  bool all = false;
  std::set<std::string> names = {};
  std::vector<Content> patterns = {};
  uint64_t items = 0;                  ///< so many from the first on
  std::vector<NodeId> contained = {};  ///< and those that satisfy one of these
};

/// Tells documents apart by which of the subschemas that apply in place hold, as far as these evaluate anything.
class Evaluation {
 public:
  enum class Of { members, items };
  enum class Mode {
    enough,  ///< a document may count as one with less evaluated as well, which asks for no negations
    exact    ///< every document is in one part
  };

  Evaluation(Normaliser& normaliser, Of of, Mode mode) : normaliser_(normaliser), of_(of), mode_(mode) {}

  /// Parts that together are `documents`, all of which satisfy the schema but for its own `unevaluated...`.
  std::vector<Evaluated> split(NodeId id, const Schema& schema, Cells documents);

 private:
  using Parts = std::vector<Evaluated>;
  using Value = json::Value;

  Parts refine(NodeId id, Parts parts);
  Parts through(NodeId id, const Schema& schema, Parts parts);
  Parts any_of(NodeId id, const Value& list, Parts parts);
  Parts one_of(NodeId id, const Value& list, Parts parts);
  Parts condition(NodeId id, const Schema& schema, Parts parts);
  Parts dependents(NodeId id, const Value& schemas, Parts parts);

  /// The documents that satisfy a literal as well.
  Parts where(Literal literal, const Parts& parts);
  Parts among(const Cells& cells, const Parts& parts);
  /// ... that do not hold, if that has to be said.
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
