// What each JSON Schema keyword requires (`minLength`, `items`, ...): a condition on the cell of its type.
#include <algorithm>

#include "engine/automata/formats/formats.h"
#include "engine/base/errors.h"
#include "engine/json/whole_words.h"
#include "engine/schema/normalise.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// True if validators interpret a pattern differently: `.`, `\d` and its siblings, word boundaries.
bool readings_differ(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '.' && !in_class) return true;
    if (c == '[' || c == ']') in_class = c == '[';
    if (c != '\\' || ++i == pattern.size()) continue;
    if (std::string_view("dDwWsSbB").find(pattern[i]) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

Cells Normaliser::of_types(NodeId id, const Schema& schema) {
  const Value* type = schema.find("type");
  if (!type) return Cells::everything();
  Cells cells;
  bool integers = false;
  const auto add = [&](const Value& name) {
    if (!name.is(Type::string)) invalid(id, "type", "a type is a string");
    if (name.text == "null") {
      cells.null = true;
    } else if (name.text == "boolean") {
      cells.booleans[0] = cells.booleans[1] = true;
    } else if (name.text == "integer") {
      integers = true;
    } else if (name.text == "number") {
      cells.numbers.resize(1);
    } else if (name.text == "string") {
      cells.strings.resize(1);
    } else if (name.text == "array") {
      cells.arrays.resize(1);
    } else if (name.text == "object") {
      cells.objects.resize(1);
    } else {
      invalid(id, "type", "there is no type '" + std::string(name.text) + "'");
    }
  };
  if (type->is(Type::string)) add(*type);
  for (const Value& name : type->items) add(name);
  if (integers && cells.numbers.empty()) {
    NumberRange& range = cells.numbers.emplace_back().range;
    range.integer = true;
    range.max_digits_with_point = document_.dialect(id).draft == Draft::draft4 ? 0 : digits_with_point();
    report_integers(id, "type");
  }
  if (cells.empty()) invalid(id, "type", "a type, or a list of types, is needed");
  return cells;
}

const json::Value* Normaliser::number(NodeId id, const Schema& schema, const char* keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Type::number)) invalid(id, keyword, "a number is needed");
  return value;
}

std::optional<uint64_t> Normaliser::count(NodeId id, const Schema& schema, const char* keyword) {
  const Value* value = number(id, schema, keyword);
  if (!value) return std::nullopt;
  const Decimal decimal = Decimal::parse(value->text);
  if (decimal.negative || !decimal.is_integer()) invalid(id, keyword, "a non-negative integer is needed");
  if (decimal.digits.empty()) return 0;
  if (decimal.digits.size() + static_cast<size_t>(decimal.exponent) > 18) return kInfinite - 1;
  return std::stoull(decimal.digits + std::string(static_cast<size_t>(decimal.exponent), '0'));
}

void Normaliser::read_numbers(NodeId id, const Schema& schema, NumberCell& cell) {
  NumberRange& range = cell.range;
  const auto bound = [&](const char* inclusive, const char* exclusive, std::optional<Bound>& out, int sign) {
    const auto consider = [&](const Value* value, bool open) {
      if (!value) return;
      const Bound next{Decimal::parse(value->text), open};
      const int order = out ? sign * compare(next.value, out->value) : 1;
      if (order > 0 || (order == 0 && open)) out = next;
    };
    const Value* open = schema.find(exclusive);
    if (open && open->is(Type::boolean)) {  // draft-04: a flag for the other bound
      consider(number(id, schema, inclusive), open->boolean);
    } else {
      consider(number(id, schema, inclusive), false);
      consider(number(id, schema, exclusive), true);
    }
  };
  bound("minimum", "exclusiveMinimum", range.lower, 1);
  bound("maximum", "exclusiveMaximum", range.upper, -1);
  if (const Value* divisor = number(id, schema, "multipleOf")) {
    const Decimal decimal = Decimal::parse(divisor->text);
    if (decimal.negative || decimal.digits.empty()) invalid(id, "multipleOf", "a positive number is needed");
    range.multiples_of.push_back(decimal);
  }
}

void Normaliser::read_strings(NodeId id, const Schema& schema, StringCell& cell) {
  if (const Value* value = schema.find("x-verbatim")) cell.contents.push_back(verbatim(id, *value));
  cell.min = count(id, schema, "minLength").value_or(0);
  cell.max = count(id, schema, "maxLength").value_or(kInfinite);
  if (const Value* text = string(id, schema, "pattern")) {
    if (auto content = pattern(id, "pattern", text->text, Classes::inner)) {
      cell.contents.push_back(std::move(*content));
    }
  }
  if (const Value* name = string(id, schema, "format")) {
    if (const auto format = find_format(name->text)) {
      cell.contents.push_back({"format " + std::string(name->text), format->inner});
      if (!format->exact) findings_.narrowed(id, "format", "not all texts of the standard");
    } else {
      const std::string_view similar = similar_format(name->text);
      findings_.ignored(id, "format",
                        "'" + std::string(name->text) + "' is no standard format: an annotation" +
                            (similar.empty() ? "" : "; did you mean '" + std::string(similar) + "'?"));
    }
  }
}

const json::Value* Normaliser::string(NodeId id, const Schema& schema, const char* keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Type::string)) invalid(id, keyword, "a string is needed");
  return value;
}

Content Normaliser::verbatim(NodeId id, const Value& value) {
  const Value* name = value.is(Type::object) ? value.find("source") : nullptr;
  const Value* words = name ? value.find("whole_words") : nullptr;
  const bool well_formed =
      name && name->is(Type::string) && (!words || words->is(Type::boolean)) && value.members.size() == (words ? 2 : 1);
  if (!well_formed) {
    invalid(id, "x-verbatim", "an object is needed that names a 'source', and may say true or false of 'whole_words'");
  }
  const bool whole = words && words->boolean;
  const std::string source(name->text);
  const std::string content = (whole ? "words of " : "verbatim ") + source;
  const auto [entry, added] = verbatim_.try_emplace(content);
  if (!added) return entry->second;
  const auto text = sources_.find(source);
  if (text == sources_.end()) {
    verbatim_.erase(entry);
    invalid(id, "x-verbatim",
            "there is no source '" + source + "'; give its text in `sources`, or extract from a document");
  }
  json::check_source_size(text->second);
  if (whole) return entry->second = {content, json::whole_words_of(text->second)};
  auto strings = std::make_shared<const json::SourceText>(text->second);
  return entry->second = {content, json::strings_of(strings), strings};
}

std::optional<Content> Normaliser::pattern(NodeId id, const char* keyword, std::string_view pattern, Classes classes) {
  if (readings_differ(pattern)) findings_.narrowed(id, keyword, kAgreedTexts);
  try {
    const RegexOptions options{.dialect = constrain::Dialect::ecma, .classes = classes, .search = true};
    return Content{(classes == Classes::outer ? "outer pattern " : "pattern ") + std::string(pattern),
                   compile_regex(pattern, options)};
  } catch (const RegexError& error) {
    const std::string reason = "the regular expression '" + std::string(pattern) + "', at offset " +
                               std::to_string(error.offset) + ": " + error.what();
    leave_out(id, keyword, reason);
    return std::nullopt;
  }
}

std::optional<Content> Normaliser::doubtful_keys(NodeId id, std::string_view text, const Content& keys) {
  const Content outer = *pattern(id, "patternProperties", text, Classes::outer);
  AutomatonPtr language = subtract(outer.language, keys.language);
  if (is_empty(*language)) return std::nullopt;
  return Content{"doubtful " + std::string(text), std::move(language)};
}

ConjunctionId Normaliser::subschema(NodeId id, const Step& step, const Value& schema, bool negated) {
  const bool everything =
      (schema.is(Type::boolean) && schema.boolean) || (schema.is(Type::object) && schema.members.empty());
  if (everything) return negated ? nothing() : 0;
  if (negated && schema.is(Type::boolean)) return 0;
  return conjunctions_.single({document_.child(id, step, schema), negated});
}

void Normaliser::read_arrays(NodeId id, const Schema& schema, ArrayCell& cell) {
  cell.min = count(id, schema, "minItems").value_or(0);
  cell.max = count(id, schema, "maxItems").value_or(kInfinite);
  if (const Value* unique = schema.find("uniqueItems")) {
    if (!unique->is(Type::boolean)) invalid(id, "uniqueItems", "true or false is needed");
    if (unique->boolean) cell.unique = id;
  }
  const Value* items = schema.find("items");
  const Value* prefix = schema.find("prefixItems");
  const char* prefix_keyword = "prefixItems";
  const Value* rest = items;
  const char* rest_keyword = "items";
  // The spelling before 2020-12 is accepted in every dialect, because its meaning is clear.
  if (items && items->is(Type::array)) {
    prefix = items, prefix_keyword = "items";
    rest = schema.find("additionalItems"), rest_keyword = "additionalItems";
  }
  if (prefix) {
    if (!prefix->is(Type::array)) invalid(id, prefix_keyword, "an array of schemas is needed");
    for (size_t i = 0; i < prefix->items.size(); ++i) {
      cell.prefix.push_back(subschema(id, item_step(prefix_keyword, i), prefix->items[i]));
    }
  }
  if (rest) {
    cell.rest = subschema(id, {rest_keyword}, *rest);
  }
  if (const Value* contains = schema.find("contains")) {
    const uint64_t min = count(id, schema, "minContains").value_or(1);
    const uint64_t max = count(id, schema, "maxContains").value_or(kInfinite);
    if (min > max) {
      cell.min = 1, cell.max = 0;
    } else if (max == 0) {
      cell.rest = conjunctions_.join(cell.rest, subschema(id, {"contains"}, *contains, true));
      for (ConjunctionId& item : cell.prefix)
        item = conjunctions_.join(item, subschema(id, {"contains"}, *contains, true));
    } else if (min > 0 || max != kInfinite) {
      cell.contains.push_back({.schema = subschema(id, {"contains"}, *contains), .min = min, .max = max});
    }
  }
}

const json::Value* Normaliser::object(NodeId id, const Schema& schema, const char* keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Type::object)) invalid(id, keyword, "an object of schemas is needed");
  return value;
}

void Normaliser::read_objects(NodeId id, const Schema& schema, ObjectCell& cell) {
  cell.min = count(id, schema, "minProperties").value_or(0);
  cell.max = count(id, schema, "maxProperties").value_or(kInfinite);
  Members members;
  const Value* properties = object(id, schema, "properties");
  const Value* patterns = object(id, schema, "patternProperties");
  const Value* additional = schema.find("additionalProperties");
  if (properties) {
    members.named.reserve(properties->members.size());
    for (const auto& [name, value] : properties->members) {
      members.named.emplace_back(name, subschema(id, member_step("properties", name), value));
    }
  }
  for (const auto& [text, value] : patterns ? patterns->members : json::List<Value::Member>()) {
    if (auto keys = pattern(id, "patternProperties", text, Classes::inner)) {
      auto doubtful = doubtful_keys(id, text, *keys);
      members.patterns.push_back(
          {std::move(*keys), std::move(doubtful), subschema(id, member_step("patternProperties", text), value)});
    } else if (additional) {
      // Without the pattern it is unknown which keys are additional.
      findings_.ignored(id, "additionalProperties", "a pattern beside it is left out");
      additional = nullptr;
    }
  }
  if (additional) {
    members.additional = subschema(id, {"additionalProperties"}, *additional);
  }
  if (properties || patterns || additional) cell.members.push_back(std::move(members));
  if (const Value* names = schema.find("propertyNames")) {
    cell.names.push_back(subschema(id, {"propertyNames"}, *names));
  }
  const Value* required = schema.find("required");
  if (required && required->is(Type::array)) {
    cell.required.reserve(required->items.size());
    for (const Value& name : required->items) {
      if (!name.is(Type::string)) invalid(id, "required", "a list of names is needed");
      if (std::find(cell.required.begin(), cell.required.end(), name.text) == cell.required.end()) {
        cell.required.emplace_back(name.text);
      }
    }
  } else if (required && !(required->is(Type::boolean))) {  // draft-03: a flag
    invalid(id, "required", "a list of names is needed");
  }
}

void Normaliser::read_dependencies(NodeId id, const Schema& schema, Cells& cells) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Value* dependencies = object(id, schema, keyword);
    if (!dependencies) continue;
    for (const auto& [name, needs] : dependencies->members) {
      if (needs.is(Type::array) || needs.is(Type::string)) {  // draft-03: a single name
        const auto need = [&](const Value& other) {
          if (!other.is(Type::string)) invalid(id, keyword, "a list of names is needed");
          for (ObjectCell& cell : cells.objects) cell.dependents.emplace_back(name, other.text);
        };
        if (needs.is(Type::string)) need(needs);
        for (const Value& other : needs.items) need(other);
        continue;
      }
      // Either the name is absent, or the schema holds.
      Cells absent = Cells::everything();
      absent.objects.front().members.push_back({.named = {{name, nothing()}}});
      Cells present = literal({document_.child(id, member_step(keyword, name), needs)});
      for (ObjectCell& cell : present.objects) cell.required.emplace_back(name);
      absent.objects.insert(absent.objects.end(), present.objects.begin(), present.objects.end());
      cells = meet(cells, absent);
    }
  }
}

}  // namespace constrain::schema
