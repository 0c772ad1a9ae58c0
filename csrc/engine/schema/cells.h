// The normal form of JSON Schema: for each JSON type a union of cells, each a conjunction in a fixed shape.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/automaton.h"
#include "engine/numbers.h"
#include "engine/rule.h"
#include "engine/schema/document.h"

namespace constrain::schema {

/// A conjunction of schemas, by number; 0 is the empty one, which everything satisfies.
using ConjunctionId = uint32_t;

/// A regular condition on the content of a string. Equal ids mean equal languages.
struct Content {
  std::string id;
  AutomatonPtr language;
};

struct NumberCell {
  NumberRange range;
  std::optional<std::vector<Decimal>> values;  ///< only these
};

struct StringCell {
  uint64_t min = 0, max = kInfinite;  ///< Unicode scalar values
  std::vector<Content> contents;
  std::optional<std::set<std::string>> words;  ///< only these

  bool any() const { return min == 0 && max == kInfinite && contents.empty() && !words; }
};

struct ArrayCell {
  std::vector<ConjunctionId> prefix;
  ConjunctionId rest = 0;
  uint64_t min = 0, max = kInfinite;

  bool operator==(const ArrayCell&) const = default;
};

/// `properties`, `patternProperties` and `additionalProperties` of one schema: they belong together.
struct Members {
  std::vector<std::pair<std::string, ConjunctionId>> named;
  std::vector<std::pair<Content, ConjunctionId>> patterns;
  ConjunctionId additional = 0;
};

struct ObjectCell {
  std::vector<Members> members;  ///< all of them apply
  std::vector<std::string> required;
  std::vector<ConjunctionId> names;  ///< `propertyNames`
  uint64_t min = 0, max = kInfinite;
};

struct Cells {
  bool null = false;
  bool booleans[2] = {false, false};
  std::vector<NumberCell> numbers;
  std::vector<StringCell> strings;
  std::vector<ArrayCell> arrays;
  std::vector<ObjectCell> objects;

  static Cells everything();
  bool empty() const;
  size_t count() const { return numbers.size() + strings.size() + arrays.size() + objects.size(); }
};

/// Numbers conjunctions: sorted sets of nodes.
class Conjunctions {
 public:
  Conjunctions() { intern({}); }
  ConjunctionId intern(std::vector<NodeId> nodes);
  ConjunctionId join(ConjunctionId a, ConjunctionId b);
  const std::vector<NodeId>& operator[](ConjunctionId id) const { return *nodes_[id]; }

 private:
  std::map<std::vector<NodeId>, ConjunctionId> ids_;
  std::vector<const std::vector<NodeId>*> nodes_;
};

/// What satisfies both; pairs of cells that obviously exclude each other are dropped.
Cells intersect(const Cells& a, const Cells& b, Conjunctions& conjunctions);

/// What satisfies one or the other.
void unite(Cells& into, Cells other);

/// Number of Unicode scalar values of a well-formed UTF-8 text.
uint64_t scalar_count(std::string_view text);

}  // namespace constrain::schema
