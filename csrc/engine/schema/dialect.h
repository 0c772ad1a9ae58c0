// The editions of JSON Schema, and which keywords each of them knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/json/value.h"

namespace constrain::schema {

enum class Draft : uint8_t { draft4, draft6, draft7, draft2019, draft2020 };

/// What a keyword is for. The first three are vocabularies that a metaschema can leave out.
enum class Group : uint8_t {
  applicator,
  unevaluated,
  validation,
  always,      ///< conditions of every dialect
  annotation,  ///< says nothing about which documents are valid
  unchecked    ///< says something that validators do not check
};

/// What a schema is written in: an edition, and a bit for each group of its keywords.
struct Dialect {
  Draft draft = Draft::draft2020;
  uint8_t groups = 0xFF;
};

/// What a keyword holds, as far as schemas are to be found in it.
enum class Holds : uint8_t { value, schema, list, map };

struct Keyword {
  std::string_view name;
  Group group;
  Holds holds = Holds::value;
  Draft since = Draft::draft4;
  Draft until = Draft::draft2020;
};

/// The keyword of that name in any edition, or nullptr.
const Keyword* find_keyword(std::string_view name);

/// A keyword that `name` may be a misspelling of, one edit away; empty where there is none.
std::string_view similar_keyword(std::string_view name);

/// The edition that a `$schema` of the specification names.
std::optional<Draft> draft_of(std::string_view uri);

/// The groups of keywords that a `$vocabulary` lists, with those that are always there.
uint8_t groups_of(const json::Value& vocabularies);

/// A member of a schema object that is not enforced.
struct Ignored {
  enum class Why : uint8_t {
    unknown,    ///< no edition has such a keyword
    elsewhere,  ///< other dialects do
    unchecked,
    hidden  ///< beside a `$ref`, before 2019-09
  };
  std::string_view name;
  Why why;

  /// Why, in words.
  std::string note(Dialect dialect) const;
};

/// The members of a schema object, as its dialect reads them.
class Schema {
 public:
  Schema(const json::Value& value, Dialect dialect);

  const json::Value* find(std::string_view keyword) const {
    for (const auto& [name, value] : conditions_) {
      if (name == keyword) return value;
    }
    return nullptr;
  }

  const std::vector<std::pair<std::string_view, const json::Value*>>& conditions() const { return conditions_; }
  const std::vector<Ignored>& ignored() const { return ignored_; }

 private:
  std::vector<std::pair<std::string_view, const json::Value*>> conditions_;
  std::vector<Ignored> ignored_;
};

}  // namespace constrain::schema
