#include "engine/schema/normalise.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/formats.h"
#include "engine/regex.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

std::string item_step(const char* keyword, size_t index) { return std::string(keyword) + "/" + std::to_string(index); }

std::string member_step(const char* keyword, const std::string& name) {
  std::string out = std::string(keyword) + "/";
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

/// Keywords that change which documents are valid and are not understood here.
constexpr const char* kUnsupported[] = {
    "not",           "oneOf",            "dependentRequired",     "dependentSchemas",
    "dependencies",  "contains",         "unevaluatedProperties", "unevaluatedItems",
    "$dynamicRef",   "$recursiveRef",
};

}  // namespace

void Normaliser::invalid(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::invalid, document_.pointer(id), keyword, reason);
}

Cells Normaliser::conjunction(ConjunctionId id) {
  Cells cells = Cells::everything();
  for (const NodeId member : std::vector<NodeId>(conjunctions_[id])) cells = intersect(cells, node(member), conjunctions_);
  cells_ += cells.count();
  if (cells_ > limits_.max_cells) {
    const auto& members = conjunctions_[id];
    const std::string where = members.empty() ? "" : document_.pointer(members.front());
    throw ResourceLimit("max_cells", limits_.max_cells, "at #" + where);
  }
  return cells;
}

const Cells& Normaliser::node(NodeId id) {
  if (const auto it = nodes_.find(id); it != nodes_.end()) return it->second;
  if (!under_way_.insert(id).second) invalid(id, "$ref", "the reference leads back to itself without entering a value");
  if (under_way_.size() > limits_.max_nesting) {
    throw ResourceLimit("max_nesting", limits_.max_nesting, "at #" + document_.pointer(id));
  }
  Cells cells = expand(id);
  under_way_.erase(id);
  return nodes_.emplace(id, std::move(cells)).first->second;
}

Cells Normaliser::expand(NodeId id) {
  const Value& schema = *document_[id].value;
  if (document_[id].constant) return value(id, schema);
  if (schema.is(Type::boolean)) return schema.boolean ? Cells::everything() : Cells();
  if (!schema.is(Type::object)) invalid(id, "", "a schema is an object or a boolean");

  const Value* reference = schema.find("$ref");
  if (reference && !reference->is(Type::string)) invalid(id, "$ref", "a reference is a string");
  if (reference && document_.dialect() <= Dialect::draft7) return node(document_.resolve(id, reference->text));
  refuse_unsupported(id, schema);

  Cells cells = Cells::everything();
  read_types(id, schema, cells);
  if (!cells.numbers.empty()) read_numbers(id, schema, cells.numbers.front());
  if (!cells.strings.empty()) read_strings(id, schema, cells.strings.front());
  if (!cells.arrays.empty()) read_arrays(id, schema, cells.arrays.front());
  if (!cells.objects.empty()) read_objects(id, schema, cells.objects.front());

  if (const Value* constant = schema.find("const")) {
    cells = intersect(cells, value(document_.constant(id, "const", *constant), *constant), conjunctions_);
    enforced(id, "const");
  }
  if (const Value* values = schema.find("enum")) {
    if (!values->is(Type::array)) invalid(id, "enum", "enum is an array");
    Cells any;
    for (size_t i = 0; i < values->items.size(); ++i) {
      unite(any, value(document_.constant(id, item_step("enum", i), values->items[i]), values->items[i]));
    }
    // One cell for all scalars, so that large enums stay one automaton.
    if (any.strings.size() > 1) {
      for (size_t i = 1; i < any.strings.size(); ++i) any.strings[0].words->merge(*any.strings[i].words);
      any.strings.resize(1);
    }
    if (any.numbers.size() > 1) {
      auto& first = *any.numbers[0].values;
      for (size_t i = 1; i < any.numbers.size(); ++i) first.push_back(any.numbers[i].values->front());
      any.numbers.resize(1);
    }
    cells = intersect(cells, any, conjunctions_);
    enforced(id, "enum");
  }
  if (reference) cells = intersect(cells, node(document_.resolve(id, reference->text)), conjunctions_);
  if (const Value* all = schema.find("allOf")) {
    if (!all->is(Type::array)) invalid(id, "allOf", "allOf is an array");
    for (size_t i = 0; i < all->items.size(); ++i) {
      cells = intersect(cells, node(document_.child(id, item_step("allOf", i), all->items[i])), conjunctions_);
    }
    enforced(id, "allOf");
  }
  if (const Value* any = schema.find("anyOf")) cells = intersect(cells, alternatives(id, "anyOf", *any), conjunctions_);
  return cells;
}

Cells Normaliser::alternatives(NodeId id, const char* keyword, const Value& list) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  Cells any;
  for (size_t i = 0; i < list.items.size(); ++i) unite(any, node(document_.child(id, item_step(keyword, i), list.items[i])));
  enforced(id, keyword);
  return any;
}

void Normaliser::refuse_unsupported(NodeId id, const Value& schema) {
  const auto refuse = [&](const char* keyword, const char* reason) {
    if (!lenient_) throw SchemaError(SchemaError::Kind::unsupported, document_.pointer(id), keyword, reason);
    report_.add(report_.ignored, document_.pointer(id), keyword, reason);
  };
  for (const char* keyword : kUnsupported) {
    if (schema.find(keyword)) refuse(keyword, "this keyword cannot be enforced");
  }
  if (schema.find("if") && (schema.find("then") || schema.find("else"))) refuse("if", "this keyword cannot be enforced");
  const Value* unique = schema.find("uniqueItems");
  if (unique && unique->is(Type::boolean) && unique->boolean) refuse("uniqueItems", "this keyword cannot be enforced");
}

void Normaliser::read_types(NodeId id, const Value& schema, Cells& cells) {
  const Value* type = schema.find("type");
  if (!type) return;
  std::vector<std::string> names;
  if (type->is(Type::string)) names.push_back(type->text);
  for (const Value& item : type->items) {
    if (!item.is(Type::string)) invalid(id, "type", "a type is a string");
    names.push_back(item.text);
  }
  if (names.empty()) invalid(id, "type", "a type, or a list of types, is needed");
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const std::string& name : names) {
    static constexpr const char* kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    if (std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes)) {
      invalid(id, "type", "there is no type '" + name + "'");
    }
  }
  cells.null = has("null");
  cells.booleans[0] = cells.booleans[1] = has("boolean");
  if (!has("number")) {
    if (has("integer")) {
      cells.numbers.front().range.integer = true;
      report_.add(report_.narrowed, document_.pointer(id), "type", "integers are written without fraction and exponent");
    } else {
      cells.numbers.clear();
    }
  }
  if (!has("string")) cells.strings.clear();
  if (!has("array")) cells.arrays.clear();
  if (!has("object")) cells.objects.clear();
  enforced(id, "type");
}

const json::Value* Normaliser::number(NodeId id, const Value& schema, const char* keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Type::number)) invalid(id, keyword, "a number is needed");
  if (value) enforced(id, keyword);
  return value;
}

std::optional<uint64_t> Normaliser::count(NodeId id, const Value& schema, const char* keyword) {
  const Value* value = number(id, schema, keyword);
  if (!value) return std::nullopt;
  const Decimal decimal = Decimal::parse(value->text);
  if (decimal.negative || !decimal.is_integer()) invalid(id, keyword, "a non-negative integer is needed");
  if (decimal.digits.empty()) return 0;
  if (decimal.digits.size() + static_cast<size_t>(decimal.exponent) > 18) return kInfinite - 1;
  return std::stoull(decimal.digits + std::string(static_cast<size_t>(decimal.exponent), '0'));
}

void Normaliser::read_numbers(NodeId id, const Value& schema, NumberCell& cell) {
  NumberRange& range = cell.range;
  const auto bound = [&](const char* inclusive, const char* exclusive, std::optional<Bound>& out, int sign) {
    const auto consider = [&](const Value* value, bool open) {
      if (!value) return;
      const Bound next{Decimal::parse(value->text), open};
      const int order = out ? sign * compare(next.value, out->value) : 1;
      if (order > 0 || (order == 0 && open)) out = next;
    };
    const Value* open = schema.find(exclusive);
    if (open && open->is(Type::boolean)) {  // draft-04: a flag on the other bound
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

void Normaliser::read_strings(NodeId id, const Value& schema, StringCell& cell) {
  cell.min = count(id, schema, "minLength").value_or(0);
  cell.max = count(id, schema, "maxLength").value_or(kInfinite);
  if (const Value* text = schema.find("pattern")) {
    if (!text->is(Type::string)) invalid(id, "pattern", "a pattern is a string");
    cell.contents.push_back(pattern(id, "pattern", text->text));
    enforced(id, "pattern");
  }
  if (const Value* name = schema.find("format"); name && name->is(Type::string)) {
    if (const auto format = make_format(name->text)) {
      cell.contents.push_back({"format " + name->text, format->inner});
      enforced(id, "format");
    } else {
      report_.add(report_.ignored, document_.pointer(id), "format", "'" + name->text + "' is no standard format: an annotation");
    }
  }
}

Content Normaliser::pattern(NodeId id, const char* keyword, const std::string& pattern) {
  try {
    const RegexOptions options{.dialect = constrain::Dialect::ecma, .classes = Classes::inner, .search = true};
    return {"pattern " + pattern, compile_regex(pattern, options)};
  } catch (const RegexError& error) {
    throw SchemaError(SchemaError::Kind::unsupported, document_.pointer(id), keyword,
                      "the regular expression '" + pattern + "', at offset " + std::to_string(error.offset) + ": " + error.what());
  }
}

ConjunctionId Normaliser::subschema(NodeId id, std::string step, const Value& schema) {
  if (schema.is(Type::boolean) && schema.boolean) return 0;
  if (schema.is(Type::object) && schema.members.empty()) return 0;
  return conjunctions_.intern({document_.child(id, std::move(step), schema)});
}

void Normaliser::read_arrays(NodeId id, const Value& schema, ArrayCell& cell) {
  cell.min = count(id, schema, "minItems").value_or(0);
  cell.max = count(id, schema, "maxItems").value_or(kInfinite);
  const Value* items = schema.find("items");
  const Value* prefix = schema.find("prefixItems");
  const char* prefix_keyword = "prefixItems";
  const Value* rest = items;
  const char* rest_keyword = "items";
  // The older spelling, before 2020-12, is understood in every dialect: nothing else can be meant by it.
  if (items && items->is(Type::array)) {
    prefix = items, prefix_keyword = "items";
    rest = schema.find("additionalItems"), rest_keyword = "additionalItems";
  }
  if (prefix) {
    if (!prefix->is(Type::array)) invalid(id, prefix_keyword, "an array of schemas is needed");
    for (size_t i = 0; i < prefix->items.size(); ++i) {
      cell.prefix.push_back(subschema(id, item_step(prefix_keyword, i), prefix->items[i]));
    }
    enforced(id, prefix_keyword);
  }
  if (rest) {
    cell.rest = subschema(id, rest_keyword, *rest);
    enforced(id, rest_keyword);
  }
}

void Normaliser::read_objects(NodeId id, const Value& schema, ObjectCell& cell) {
  cell.min = count(id, schema, "minProperties").value_or(0);
  cell.max = count(id, schema, "maxProperties").value_or(kInfinite);
  const auto object = [&](const char* keyword) {
    const Value* value = schema.find(keyword);
    if (value && !value->is(Type::object)) invalid(id, keyword, "an object of schemas is needed");
    if (value) enforced(id, keyword);
    return value;
  };
  Members members;
  const Value* properties = object("properties");
  const Value* patterns = object("patternProperties");
  const Value* additional = schema.find("additionalProperties");
  if (properties) {
    for (const auto& [name, value] : properties->members) {
      members.named.emplace_back(name, subschema(id, member_step("properties", name), value));
    }
  }
  if (patterns) {
    for (const auto& [text, value] : patterns->members) {
      members.patterns.emplace_back(pattern(id, "patternProperties", text),
                                    subschema(id, member_step("patternProperties", text), value));
    }
  }
  if (additional) {
    members.additional = subschema(id, "additionalProperties", *additional);
    enforced(id, "additionalProperties");
  }
  if (properties || patterns || additional) cell.members.push_back(std::move(members));
  if (const Value* names = schema.find("propertyNames")) {
    cell.names.push_back(subschema(id, "propertyNames", *names));
    enforced(id, "propertyNames");
  }
  const Value* required = schema.find("required");
  if (required && required->is(Type::array)) {
    for (const Value& name : required->items) {
      if (!name.is(Type::string)) invalid(id, "required", "a list of names is needed");
      if (std::find(cell.required.begin(), cell.required.end(), name.text) == cell.required.end()) {
        cell.required.push_back(name.text);
      }
    }
    enforced(id, "required");
  } else if (required && !(required->is(Type::boolean))) {  // draft-03 had a flag there
    invalid(id, "required", "a list of names is needed");
  }
}

Cells Normaliser::value(NodeId id, const Value& value) {
  Cells cells;
  switch (value.type) {
    case Type::null:
      cells.null = true;
      break;
    case Type::boolean:
      cells.booleans[value.boolean] = true;
      break;
    case Type::number:
      cells.numbers.push_back({.range = {}, .values = std::vector{Decimal::parse(value.text)}});
      break;
    case Type::string:
      cells.strings.push_back({.words = std::set{value.text}});
      break;
    case Type::array: {
      ArrayCell cell;
      for (size_t i = 0; i < value.items.size(); ++i) {
        cell.prefix.push_back(conjunctions_.intern({document_.constant(id, std::to_string(i), value.items[i])}));
      }
      cell.min = cell.max = value.items.size();
      cells.arrays.push_back(std::move(cell));
      break;
    }
    case Type::object: {
      ObjectCell cell;
      Members members;
      for (const auto& [name, member] : value.members) {
        members.named.emplace_back(name, conjunctions_.intern({document_.constant(id, name, member)}));
        cell.required.push_back(name);
      }
      members.additional = conjunctions_.intern({document_.nothing()});
      cell.members.push_back(std::move(members));
      cells.objects.push_back(std::move(cell));
    }
  }
  return cells;
}

}  // namespace constrain::schema
