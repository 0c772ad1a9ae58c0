// JSON Schema to rules.
#pragma once

#include <map>
#include <string>

#include "engine/base/byte_set.h"
#include "engine/grammar/parse_table.h"
#include "engine/json/value.h"
#include "engine/json/whitespace.h"
#include "engine/schema/report.h"

namespace constrain::schema {

struct Options {
  json::Whitespace whitespace;
  bool in_order = false;  ///< properties in the order of the schema, instead of any order
  bool lenient = false;   ///< drop keywords that cannot be enforced, and report them, instead of refusing the schema
  Limits limits;
  std::map<std::string, std::string> sources = {};  ///< texts that `x-verbatim` names
  Retrieve retrieve = [](const std::string&) { return std::nullopt; };
};

/// Adds rules to a grammar, the root among them, for the JSON documents that a schema allows in the spellings that the
/// options allow. Throws SchemaError, ResourceLimit; some rules may have been added then.
Report compile(const json::Value& schema, const Options& options, Grammar& grammar);

/// Bytes that JSON documents begin with.
ByteSet first_bytes();

/// Where a schema that nothing satisfies contradicts itself.
SchemaError conflict(const json::Value& schema, const Options& options);

}  // namespace constrain::schema
