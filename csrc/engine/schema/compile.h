// Compilation of JSON Schema to the rules of a grammar, of which engine/masks/ computes token masks.
//
//   keyword -> condition on a cell    keyword_table.cpp, keywords.cpp, negate.cpp, normalise.cpp
//   cell -> rule                      compile.cpp, scalar_rules.cpp, engine/json/
//   rules -> mask of the next token   Matcher::mask (engine/matcher/), MaskBuilder (engine/masks/)
#pragma once

#include <map>
#include <string>

#include "engine/base/byte_set.h"
#include "engine/grammar/parse_table.h"
#include "engine/json/value.h"
#include "engine/json/whitespace.h"
#include "engine/schema/keyword_table.h"
#include "engine/schema/report.h"

namespace constrain::schema {

struct Options {
  json::Whitespace whitespace;
  bool in_order = false;        ///< properties come in the order of the schema, not in any order
  bool plain_integers = false;  ///< integers are written without `.0`
  bool lenient = false;  ///< drops keywords that cannot be enforced, and reports them; else the schema is refused
  Formats formats = Formats::asserted;
  Limits limits;
  std::map<std::string, std::string> sources = {};  ///< texts for `x-verbatim`, by name
  Retrieve retrieve = [](const std::string&) { return std::nullopt; };
};

/// Adds the rules of a schema, including the root, to a grammar: its JSON documents in the spellings that the options
/// allow. Throws SchemaError and ResourceLimit, possibly after adding some rules.
Coverage compile(json::Tree schema, const Options& options, Grammar& grammar);

/// First bytes of JSON documents.
ByteSet first_bytes();

/// Locates the contradiction in an unsatisfiable schema.
SchemaError conflict(const json::Value& schema, const Options& options);

}  // namespace constrain::schema
