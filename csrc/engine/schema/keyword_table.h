// The table of JSON Schema keywords, and the editions (drafts) that have them.
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

/// Purpose of a keyword. The first four are vocabularies that a metaschema can leave out.
enum class Group : uint8_t {
  applicator,
  unevaluated,
  validation,
  format,      ///< restricts documents in dialects that assert formats
  always,      ///< restrictions in every dialect
  annotation,  ///< does not restrict documents
  unchecked    ///< restricts documents in ways that validators do not check
};

/// The dialect of a schema: an edition, and a bit for each group of its keywords.
struct Dialect {
  Draft draft = Draft::draft2020;
  uint8_t groups = 0xFF;
};

/// Kinds of keyword values, as far as they contain schemas.
enum class Holds : uint8_t { value, schema, list, map };

struct Keyword {
  std::string_view name;
  Group group;
  Holds holds = Holds::value;
  Draft since = Draft::draft4;
  Draft until = Draft::draft2020;
};

/// Finds a keyword of any edition; nullptr if there is none.
const Keyword* find_keyword(std::string_view name);

/// Finds a keyword that differs from `name` by one edit at most, if case, `_` and `-` do not count; empty if there is
/// none.
std::string_view similar_keyword(std::string_view name);

/// Finds the edition of a `$schema` URI of the specification.
std::optional<Draft> draft_of(std::string_view uri);

/// Where `format` restricts documents: everywhere, or as each dialect says.
enum class Formats : uint8_t { asserted, dialect };

/// The dialect of an edition's own metaschema.
Dialect standard_dialect(Draft draft, Formats formats);

/// The groups in a `$vocabulary`, and those that are always present.
uint8_t groups_of(const json::Value& vocabularies, Formats formats);

/// A member of a schema object that is not enforced.
struct Ignored {
  enum class Why : uint8_t {
    unknown,    ///< no edition has such a keyword
    elsewhere,  ///< other dialects have it
    unchecked,
    annotation,  ///< a format that the dialect does not assert
    hidden       ///< next to a `$ref`, before 2019-09
  };
  std::string_view name;
  Why why;

  /// Reason for the report.
  std::string note(Dialect dialect) const;
};

/// The members of a schema object in its dialect.
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
