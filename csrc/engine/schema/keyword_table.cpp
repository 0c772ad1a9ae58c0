#include "engine/schema/keyword_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "engine/text/similar_name.h"

namespace constrain::schema {

namespace {

using enum Draft;
using enum Holds;
using enum Group;

// To add a keyword: a row here, then what it requires (keywords.cpp), its negation (negate.cpp), and its meaning for
// `unevaluated...` (evaluation.cpp). If no rule in engine/json/ can enforce it yet: that rule, which compile.cpp makes.
// If it can exclude all values: `kSuspects` in compile.cpp, for the error.
//
// `additionalItems` (with `items` as a list) and `dependencies` are accepted in the editions that dropped them, because
// their meaning is clear. `$defs` holds schemas in every edition.
constexpr Keyword kKeywords[] = {
    {"$schema", annotation},
    {"$id", annotation, value, draft6},
    {"id", annotation, value, draft4, draft4},
    {"$ref", always},
    {"$anchor", annotation, value, draft2019},
    {"$dynamicAnchor", annotation, value, draft2020},
    {"$dynamicRef", always, value, draft2020},
    {"$recursiveAnchor", annotation, value, draft2019, draft2019},
    {"$recursiveRef", always, value, draft2019, draft2019},
    {"$vocabulary", annotation, value, draft2019},
    {"$defs", annotation, map},
    {"definitions", annotation, map},
    {"$comment", annotation},

    {"allOf", applicator, list},
    {"anyOf", applicator, list},
    {"oneOf", applicator, list},
    {"not", applicator, schema},
    {"if", applicator, schema, draft7},
    {"then", applicator, schema, draft7},
    {"else", applicator, schema, draft7},
    {"properties", applicator, map},
    {"patternProperties", applicator, map},
    {"additionalProperties", applicator, schema},
    {"propertyNames", applicator, schema, draft6},
    {"dependencies", applicator, map},
    {"dependentSchemas", applicator, map, draft2019},
    {"items", applicator, schema},
    {"prefixItems", applicator, list, draft2020},
    {"additionalItems", applicator, schema},
    {"contains", applicator, schema, draft6},
    {"unevaluatedItems", unevaluated, schema, draft2019},
    {"unevaluatedProperties", unevaluated, schema, draft2019},

    {"type", validation},
    {"enum", validation},
    {"const", validation, value, draft6},
    {"multipleOf", validation},
    {"minimum", validation},
    {"maximum", validation},
    {"exclusiveMinimum", validation},
    {"exclusiveMaximum", validation},
    {"minLength", validation},
    {"maxLength", validation},
    {"pattern", validation},
    {"minItems", validation},
    {"maxItems", validation},
    {"uniqueItems", validation},
    {"minContains", validation, value, draft2019},
    {"maxContains", validation, value, draft2019},
    {"minProperties", validation},
    {"maxProperties", validation},
    {"required", validation},
    {"dependentRequired", validation, value, draft2019},
    {"format", Group::format},
    {"x-verbatim", always},

    {"title", annotation},
    {"description", annotation},
    {"default", annotation},
    {"examples", annotation},
    {"x-evidence", annotation},
    {"deprecated", annotation},
    {"readOnly", annotation},
    {"writeOnly", annotation},
    {"contentEncoding", unchecked, value, draft7},
    {"contentMediaType", unchecked, value, draft7},
    {"contentSchema", unchecked, schema, draft2019},
};

/// Keywords by their hash, numbered from 1; 0 where there is none.
using KeywordTable = std::array<uint8_t, 512>;

constexpr size_t hash_of_keyword(std::string_view name) {
  const auto at = [&](size_t index) { return static_cast<uint8_t>(name[index]); };
  return (name.size() * 37 + at(0) * 5 + at(name.size() / 2) * 113 + at(name.size() - 1) * 19) %
         std::tuple_size_v<KeywordTable>;
}

constexpr KeywordTable keyword_table() {
  KeywordTable table{};
  for (uint8_t index = 0; index < std::size(kKeywords); ++index) {
    size_t slot = hash_of_keyword(kKeywords[index].name);
    while (table[slot] != 0) slot = (slot + 1) % table.size();
    table[slot] = index + 1;
  }
  return table;
}

constexpr uint8_t bit(Group group) { return static_cast<uint8_t>(1u << static_cast<int>(group)); }

std::string_view draft_name(Draft draft) {
  static constexpr std::string_view kNames[] = {"draft 4", "draft 6", "draft 7", "draft 2019-09", "draft 2020-12"};
  return kNames[static_cast<size_t>(draft)];
}

}  // namespace

const Keyword* find_keyword(std::string_view name) {
  static constexpr auto kByName = keyword_table();
  if (name.empty()) return nullptr;
  size_t slot = hash_of_keyword(name);
  while (kByName[slot] != 0 && kKeywords[kByName[slot] - 1].name != name) slot = (slot + 1) % kByName.size();
  return kByName[slot] == 0 ? nullptr : &kKeywords[kByName[slot] - 1];
}

std::string_view similar_keyword(std::string_view name) {
  static const auto kNames = [] {
    std::array<std::string_view, std::size(kKeywords)> names;
    std::ranges::transform(kKeywords, names.begin(), &Keyword::name);
    return names;
  }();
  return similar_name(name, kNames);
}

std::optional<Draft> draft_of(std::string_view uri) {
  static constexpr std::pair<std::string_view, Draft> kDrafts[] = {
      {"draft-04/", draft4},         {"draft-06/", draft6},         {"draft-07/", draft7},
      {"draft/2019-09/", draft2019}, {"draft/2020-12/", draft2020}, {"", draft2020},
  };
  const auto skip = [&](std::string_view prefix) {
    const bool there = uri.starts_with(prefix);
    if (there) uri.remove_prefix(prefix.size());
    return there;
  };
  if (uri.ends_with('#')) uri.remove_suffix(1);
  if (!skip("https://") && !skip("http://")) return std::nullopt;
  if (!skip("json-schema.org/")) return std::nullopt;
  const Draft draft = std::ranges::find_if(kDrafts, skip, [](const auto& entry) { return entry.first; })->second;
  // Hyper-schemas add no restrictions.
  return uri == "schema" || uri == "hyper-schema" ? std::optional(draft) : std::nullopt;
}

Dialect standard_dialect(Draft draft, Formats formats) {
  Dialect dialect{.draft = draft};
  if (formats == Formats::dialect && draft >= draft2019) dialect.groups &= static_cast<uint8_t>(~bit(Group::format));
  return dialect;
}

uint8_t groups_of(const json::Value& vocabularies, Formats formats) {
  uint8_t found = bit(always) | bit(annotation) | bit(unchecked);
  if (formats == Formats::asserted) found |= bit(Group::format);
  for (const auto& [uri, needed] : vocabularies.members) {
    if (uri.ends_with("/vocab/format-assertion")) found |= bit(Group::format);
    // In that edition, only an implementation that must know the vocabulary asserts formats.
    if (uri.ends_with("2019-09/vocab/format") && needed.boolean) found |= bit(Group::format);
    if (uri.ends_with("/vocab/applicator")) found |= bit(applicator);
    if (uri.ends_with("/vocab/unevaluated")) found |= bit(unevaluated);
    if (uri.ends_with("/vocab/validation")) found |= bit(validation);
    // That edition has no separate vocabulary for unevaluated keywords.
    if (uri.ends_with("2019-09/vocab/applicator")) found |= bit(unevaluated);
  }
  return found;
}

Schema::Schema(const json::Value& value, Dialect dialect) {
  const bool only_reference = dialect.draft <= draft7 && value.find("$ref");
  const auto judge = [&](const Keyword& keyword) -> std::optional<Ignored::Why> {
    if (only_reference && keyword.name != "$ref") return Ignored::Why::hidden;
    if (dialect.draft < keyword.since || dialect.draft > keyword.until) return Ignored::Why::elsewhere;
    if (!(dialect.groups & bit(keyword.group))) {
      return keyword.group == Group::format ? Ignored::Why::annotation : Ignored::Why::elsewhere;
    }
    if (keyword.group == unchecked) return Ignored::Why::unchecked;
    return std::nullopt;
  };
  conditions_.reserve(value.members.size());
  for (const auto& [name, member] : value.members) {
    const Keyword* keyword = find_keyword(name);
    if (keyword && keyword->group == annotation) continue;
    const auto why = keyword ? judge(*keyword) : Ignored::Why::unknown;
    if (why) {
      ignored_.push_back({name, *why});
    } else {
      conditions_.emplace_back(keyword->name, &member);
    }
  }
}

std::string Ignored::note(Dialect dialect) const {
  switch (why) {
    case Why::unknown: {
      if (name == "nullable") return "a keyword of OpenAPI 3.0; did you mean \"null\" in 'type'?";
      const std::string_view similar = similar_keyword(name);
      return "unknown keyword" + (similar.empty() ? "" : "; did you mean '" + std::string(similar) + "'?");
    }
    case Why::elsewhere:
      return "no keyword of " + std::string(draft_name(dialect.draft));
    case Why::unchecked:
      return "the contents of strings are not checked";
    case Why::annotation:
      return "an annotation in this dialect of " + std::string(draft_name(dialect.draft));
    case Why::hidden:
      return "hidden by $ref, as in every draft before 2019-09";
  }
  return "";
}

}  // namespace constrain::schema
