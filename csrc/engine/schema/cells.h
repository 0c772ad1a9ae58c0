// The normal form of JSON Schema: for each JSON type a union of cells, each a conjunction in a fixed shape. Texts in
// cells belong to the document.
#pragma once

#include <memory_resource>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/automata/numbers/numbers.h"
#include "engine/base/interner.h"
#include "engine/grammar/rule.h"
#include "engine/json/source_text.h"
#include "engine/schema/document.h"

namespace constrain::schema {

/// A schema or its negation.
struct Literal {
  NodeId node;
  bool negated = false;
  auto operator<=>(const Literal&) const = default;
};

/// A conjunction of literals, by number; 0 is the empty conjunction.
using ConjunctionId = uint32_t;

/// A regular condition on the content of a string. Equal ids mean equal languages.
struct Content {
  std::string id;
  AutomatonPtr language;
  json::SourceTextPtr source = nullptr;  ///< set if the content is all substrings of a text
  bool operator==(const Content& other) const { return id == other.id; }
};

struct NumberCell {
  NumberRange range;
  bool fractional = false;  ///< no integers
  std::vector<Decimal> not_multiples_of;
  std::vector<Decimal> excluded;
  std::optional<std::vector<Decimal>> values;  ///< if set, the only values

  bool operator==(const NumberCell&) const = default;
};

struct StringCell {
  uint64_t min = 0, max = kInfinite;  ///< Unicode scalar values
  std::vector<Content> contents;
  std::optional<std::set<std::string_view>> words;  ///< if set, the only values

  bool any() const { return min == 0 && max == kInfinite && contents.empty() && !words; }
  bool operator==(const StringCell&) const = default;
};

/// Between `min` and `max` items, from index `from` on, satisfy `schema`.
struct Contains {
  ConjunctionId schema;
  uint64_t from = 0, min = 1, max = kInfinite;
  bool operator==(const Contains&) const = default;
};

struct ArrayCell {
  std::vector<ConjunctionId> prefix;
  ConjunctionId rest = 0;
  uint64_t min = 0, max = kInfinite;
  std::vector<Contains> contains;
  std::optional<NodeId> unique;  ///< node of the `uniqueItems` keyword

  bool operator==(const ArrayCell&) const = default;
};

/// A member of `patternProperties`. If interpretations of the pattern differ over a key, both apply: it satisfies the
/// schema, and does not count as matched.
struct KeyPattern {
  Content keys;
  std::optional<Content> doubtful;
  ConjunctionId schema;
  bool operator==(const KeyPattern&) const = default;
};

/// `properties`, `patternProperties` and `additionalProperties` of one schema, which depend on each other.
struct Members {
  std::vector<std::pair<std::string_view, ConjunctionId>> named;
  std::vector<KeyPattern> patterns;
  ConjunctionId additional = 0;
  bool operator==(const Members&) const = default;
};

/// Requires a member with a key in `keys` and a value that satisfies `value`.
struct Exists {
  Content keys;
  ConjunctionId value;
  bool operator==(const Exists&) const = default;
};

struct ObjectCell {
  std::vector<Members> members;  ///< all of them apply
  std::vector<std::string_view> required;
  std::vector<std::pair<std::string_view, std::string_view>> dependents;  ///< if the first is present, so is the second
  std::vector<ConjunctionId> names;                                       ///< `propertyNames`
  std::vector<Exists> exists;
  uint64_t min = 0, max = kInfinite;

  bool operator==(const ObjectCell&) const = default;
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

// Cells of one type.
Cells only(NumberCell cell);
Cells only(StringCell cell);
Cells only(ArrayCell cell);
Cells only(ObjectCell cell);

/// Numbers conjunctions: sorted sets of literals.
class Conjunctions {
 public:
  /// What is allocated from `memory` is not freed.
  explicit Conjunctions(std::pmr::memory_resource* memory) : memory_(memory), key_(memory), literals_(memory) {
    ids_.intern({}), literals_.emplace_back();
  }
  ConjunctionId single(Literal literal) { return number(std::span(&literal, 1)); }
  ConjunctionId intern(std::vector<Literal> literals);
  ConjunctionId join(ConjunctionId a, ConjunctionId b);
  std::span<const Literal> operator[](ConjunctionId id) const { return literals_[id]; }

 private:
  /// Numbers sorted literals.
  ConjunctionId number(std::span<const Literal> literals);

  SequenceInterner ids_;
  std::pmr::polymorphic_allocator<> memory_;
  std::pmr::vector<uint32_t> key_;                       // scratch
  std::pmr::vector<std::span<const Literal>> literals_;  // in `memory_`
};

/// Intersection; drops pairs of cells that obviously exclude each other.
Cells intersect(const Cells& a, const Cells& b, Conjunctions& conjunctions);

/// Union; drops cells contained in another one.
void unite(Cells& into, Cells other);

/// Complement of a language.
Content outside(const Content& content);

/// Keys that are none of the names and match none of the patterns.
Content keys_beyond(const std::vector<std::string_view>& names, const std::vector<Content>& patterns);

/// The schemas that `properties` and its siblings assign to keys.
class MemberValues {
 public:
  MemberValues(const ObjectCell& cell, Conjunctions& conjunctions);
  ConjunctionId operator[](std::string_view key) const;

 private:
  using Named = std::pair<std::string_view, ConjunctionId>;

  const ObjectCell& cell_;
  Conjunctions& conjunctions_;
  std::vector<std::vector<const Named*>> sorted_;  // by name, for `Members` with many
};

/// Values that every document of a cell contains.
std::vector<ConjunctionId> needed(const ArrayCell& cell);
std::vector<ConjunctionId> needed(const ObjectCell& cell, Conjunctions& conjunctions);

/// Levels of required members and items that the search for empty cells descends.
inline constexpr int kPruneDepth = 6;

/// Number of Unicode scalar values of a well-formed UTF-8 text.
uint64_t scalar_count(std::string_view text);

}  // namespace constrain::schema
