// What violates each JSON Schema keyword: the negation of schemas, keyword by keyword.
#include <algorithm>

#include "engine/automata/formats/formats.h"
#include "engine/base/errors.h"
#include "engine/schema/normalise.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// True for a property with one value, which discriminates the branches of a union.
bool discriminates(const json::Value& property) {
  const json::Value* values = property.find("enum");
  return property.find("const") || (values && values->items.size() == 1);
}

bool requires_member(const Schema& schema, std::string_view name) {
  const json::Value* list = schema.find("required");
  const auto is_it = [&](const json::Value& item) { return item.is(Type::string) && item.text == name; };
  return list && list->is(Type::array) && std::ranges::any_of(list->items, is_it);
}

/// The first draft that defines a format. Validators of earlier ones take it for an annotation, which always holds.
Draft first_draft_with(std::string_view format) {
  static constexpr std::pair<std::string_view, Draft> kLater[] = {
      {"uri-reference", Draft::draft6},
      {"uri-template", Draft::draft6},
      {"json-pointer", Draft::draft6},
      {"date", Draft::draft7},
      {"time", Draft::draft7},
      {"regex", Draft::draft7},
      {"idn-email", Draft::draft7},
      {"idn-hostname", Draft::draft7},
      {"iri", Draft::draft7},
      {"iri-reference", Draft::draft7},
      {"relative-json-pointer", Draft::draft7},
      {"duration", Draft::draft2019},
      {"uuid", Draft::draft2019},
  };
  const auto later = std::ranges::find(kLater, format, &std::pair<std::string_view, Draft>::first);
  return later == std::end(kLater) ? Draft::draft4 : later->second;
}

}  // namespace

Cells Normaliser::negate(NodeId id) {
  const Node& node = document_[id];
  if (node.kind == Node::Kind::constant) return other_than(id, *node.value);
  if (node.kind == Node::Kind::any_of) {
    Cells none = Cells::everything();
    for (const NodeId one : node.parts) none = satisfying(none, {one, true});
    return none;
  }
  if (node.value->is(Type::boolean)) return node.value->boolean ? Cells() : Cells::everything();
  const Schema schema = read(id);

  Cells out;
  negate_types(id, schema, out);
  negate_numbers(id, schema, out);
  negate_strings(id, schema, out);
  negate_arrays(id, schema, out);
  negate_objects(id, schema, out);
  negate_dependencies(id, schema, out);
  if (const Value* constant = schema.find("const"))
    unite(out, other_than(document_.constant(id, {"const"}, *constant), *constant));
  if (const Value* list = schema.find("enum")) {
    if (!list->is(Type::array)) invalid(id, "enum", "an array of values is needed");
    Cells none = Cells::everything();
    std::vector<std::string_view> words;
    for (size_t i = 0; i < list->items.size(); ++i) {
      const Value& item = list->items[i];
      if (item.is(Type::string)) {
        words.emplace_back(item.text);
      } else {
        none = meet(none, other_than(document_.constant(id, item_step("enum", i), item), item));
      }
    }
    if (!words.empty()) none = meet(none, other_strings(words));
    unite(out, std::move(none));
  }
  for (const NodeId target : document_.references(id, schema)) unite(out, literal({target, true}));
  if (const Value* all = schema.find("allOf")) unite(out, any_of(id, "allOf", *all, true));
  if (const Value* any = schema.find("anyOf")) unite(out, all_of(id, "anyOf", *any, true, Cells::everything()));
  if (const Value* one = schema.find("oneOf")) unite(out, not_one_of(id, *one));
  if (const Value* other = schema.find("not")) unite(out, literal({part(id, "not", *other)}));
  if (schema.find("if")) unite(out, if_then_else(id, schema, true, Cells::everything()));
  negate_unevaluated(id, schema, out);
  discriminate(id, schema, out);
  // The violations of a keyword that was left out are unknown: any document may violate it.
  if (left_out_.contains(id)) return Cells::everything();
  const ConjunctionId reason = prune(out, kPruneDepth);
  if (out.empty()) conflicts_.try_emplace({id, true}, Conflict{id, "", reason});
  return out;
}

Cells Normaliser::not_one_of(NodeId id, const Value& list) {
  // Either no branch holds, or two do.
  Cells out = all_of(id, "oneOf", list, true, Cells::everything());
  for (size_t i = 0; i < list.items.size(); ++i) {
    const Cells first = literal({item(id, "oneOf", list, i)});
    for (size_t j = i + 1; j < list.items.size(); ++j) {
      unite(out, satisfying(first, {item(id, "oneOf", list, j)}));
    }
  }
  return out;
}

void Normaliser::negate_types(NodeId id, const Schema& schema, Cells& out) {
  if (!schema.find("type")) return;
  const Cells typed = of_types(id, schema);
  Cells others;
  others.null = !typed.null;
  for (int i = 0; i < 2; ++i) others.booleans[i] = !typed.booleans[i];
  if (typed.numbers.empty()) others.numbers.emplace_back();
  if (!typed.numbers.empty() && typed.numbers.front().range.integer) others.numbers.push_back({.fractional = true});
  if (typed.strings.empty()) others.strings.emplace_back();
  if (typed.arrays.empty()) others.arrays.emplace_back();
  if (typed.objects.empty()) others.objects.emplace_back();
  unite(out, std::move(others));
}

void Normaliser::negate_numbers(NodeId id, const Schema& schema, Cells& out) {
  NumberCell cell;
  read_numbers(id, schema, cell);
  if (const auto& lower = cell.range.lower) {
    NumberCell below;
    below.range.upper = Bound{lower->value, !lower->exclusive};
    unite(out, only(below));
  }
  if (const auto& upper = cell.range.upper) {
    NumberCell above;
    above.range.lower = Bound{upper->value, !upper->exclusive};
    unite(out, only(above));
  }
  for (const Decimal& divisor : cell.range.multiples_of) unite(out, only(NumberCell{.not_multiples_of = {divisor}}));
}

void Normaliser::negate_strings(NodeId id, const Schema& schema, Cells& out) {
  const uint64_t min = count(id, schema, "minLength").value_or(0),
                 max = count(id, schema, "maxLength").value_or(kInfinite);
  if (min > 0) unite(out, only(StringCell{.max = min - 1}));
  if (max != kInfinite) unite(out, only(StringCell{.min = max + 1}));
  if (const Value* value = schema.find("x-verbatim")) {
    unite(out, only(StringCell{.contents = {outside(verbatim(id, *value))}}));
  }
  if (const Value* text = string(id, schema, "pattern")) {
    const auto content = pattern(id, "pattern", text->text, Classes::outer);
    if (content) unite(out, only(StringCell{.contents = {outside(*content)}}));
  }
  const Value* name = string(id, schema, "format");
  if (!name) return;
  if (document_.dialect(id).draft < first_draft_with(name->text)) {
    findings_.narrowed(id, "format",
                       "in a negation it always holds: the dialect does not define '" + std::string(name->text) + "'");
  } else if (const AutomatonPtr format = outer_format(name->text)) {
    unite(out, only(StringCell{.contents = {outside({"outer format " + std::string(name->text), format})}}));
  }
}

void Normaliser::negate_arrays(NodeId id, const Schema& schema, Cells& out) {
  ArrayCell cell;
  read_arrays(id, schema, cell);
  if (cell.min > 0) unite(out, only(ArrayCell{.max = cell.min - 1}));
  if (cell.max != kInfinite) unite(out, only(ArrayCell{.min = cell.max + 1}));
  if (cell.unique && cell.max > 1) leave_out(id, "uniqueItems", "its negation cannot be enforced");

  const Value* items = schema.find("items");
  const bool tuple = items && items->is(Type::array);
  const char* prefix_keyword = tuple ? "items" : "prefixItems";
  const Value* prefix = tuple ? items : schema.find("prefixItems");
  const char* rest_keyword = tuple ? "additionalItems" : "items";
  const Value* rest = schema.find(rest_keyword);
  const size_t length = prefix ? prefix->items.size() : 0;
  for (size_t i = 0; i < length; ++i) {
    ArrayCell wrong{.prefix = std::vector<ConjunctionId>(i + 1, 0), .min = i + 1};
    wrong.prefix[i] = subschema(id, item_step(prefix_keyword, i), prefix->items[i], true);
    unite(out, only(std::move(wrong)));
  }
  if (rest)
    unite(out, only(ArrayCell{.min = length + 1,
                              .contains = {{.schema = subschema(id, {rest_keyword}, *rest, true), .from = length}}}));
  if (const Value* contains = schema.find("contains")) {
    const uint64_t min = count(id, schema, "minContains").value_or(1),
                   max = count(id, schema, "maxContains").value_or(kInfinite);
    if (min == 1) unite(out, only(ArrayCell{.rest = subschema(id, {"contains"}, *contains, true)}));
    if (min > 1)
      unite(
          out,
          only(ArrayCell{.contains = {{.schema = subschema(id, {"contains"}, *contains), .min = 0, .max = min - 1}}}));
    if (max != kInfinite) {
      unite(out, only(ArrayCell{.min = max + 1,
                                .contains = {{.schema = subschema(id, {"contains"}, *contains), .min = max + 1}}}));
    }
  }
}

/// A required member that is missing, and one whose value is wrong, are one alternative.
void Normaliser::negate_property(NodeId id, const Schema& schema, const std::string_view& name, const Value& value,
                                 Cells& out) {
  const bool required = requires_member(schema, name);
  const ConjunctionId wrong = subschema(id, member_step("properties", name), value, true);
  ObjectCell cell{.members = {{.named = {{name, wrong}}}}};
  if (!required) cell.required.emplace_back(name);
  if (required || wrong != nothing()) unite(out, only(std::move(cell)));
}

void Normaliser::discriminate(NodeId id, const Schema& schema, Cells& out) {
  const Value* properties = schema.find("properties");
  if (!properties) return;
  Members held;
  Cells violations;
  for (const auto& [name, value] : properties->members) {
    if (!discriminates(value)) continue;
    held.named.emplace_back(name, subschema(id, member_step("properties", name), value));
    negate_property(id, schema, name, value, violations);
  }
  if (held.named.empty()) return;
  const bool any = std::ranges::find(out.objects, ObjectCell{}) != out.objects.end();
  if (any) return;
  for (ObjectCell& cell : out.objects) cell.members.push_back(held);
  unite(out, std::move(violations));
}

void Normaliser::negate_objects(NodeId id, const Schema& schema, Cells& out) {
  ObjectCell cell;
  read_objects(id, schema, cell);
  if (cell.min > 0) unite(out, only(ObjectCell{.max = cell.min - 1}));
  if (cell.max != kInfinite) unite(out, only(ObjectCell{.min = cell.max + 1}));
  const Value* properties = schema.find("properties");
  for (const std::string_view name : cell.required) {
    const bool has_schema = properties && properties->find(name);
    if (!has_schema) unite(out, only(ObjectCell{.members = {{.named = {{name, nothing()}}}}}));
  }
  if (properties) {
    for (const auto& [name, value] : properties->members) {
      if (!discriminates(value)) negate_property(id, schema, name, value, out);
    }
  }
  std::vector<std::string_view> names;
  for (const Members& members : cell.members) {
    for (const auto& [name, unused] : members.named) names.push_back(name);
  }
  // Under negation a key counts as matched if any interpretation of the pattern matches.
  std::vector<Content> matched;
  if (const Value* patterns = schema.find("patternProperties")) {
    for (const auto& [text, value] : patterns->members) {
      const auto keys = pattern(id, "patternProperties", text, Classes::inner);
      if (!keys) continue;
      matched.push_back(*pattern(id, "patternProperties", text, Classes::outer));
      const ConjunctionId wrong = subschema(id, member_step("patternProperties", text), value, true);
      if (wrong != nothing()) unite(out, only(ObjectCell{.exists = {{*keys, wrong}}, .min = 1}));
    }
  }
  if (const Value* additional = schema.find("additionalProperties")) {
    const ConjunctionId wrong = subschema(id, {"additionalProperties"}, *additional, true);
    if (wrong != nothing()) unite(out, only(ObjectCell{.exists = {{keys_beyond(names, matched), wrong}}, .min = 1}));
  }
  for (const ConjunctionId names : cell.names) {
    if (names == 0) continue;
    unite(out, only(ObjectCell{.exists = {{outside(key_language(names)), 0}}, .min = 1}));
  }
}

void Normaliser::negate_dependencies(NodeId id, const Schema& schema, Cells& out) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Value* dependencies = object(id, schema, keyword);
    if (!dependencies) continue;
    for (const auto& [name, needs] : dependencies->members) {
      if (needs.is(Type::array) || needs.is(Type::string)) {
        const auto lacks = [&](const Value& other) {
          unite(out, only(ObjectCell{.members = {{.named = {{other.text, nothing()}}}}, .required = {name}}));
        };
        if (needs.is(Type::string)) lacks(needs);
        for (const Value& other : needs.items) lacks(other);
        continue;
      }
      Cells present;
      present.objects.push_back({.required = {name}});
      unite(out, satisfying(present, {document_.child(id, member_step(keyword, name), needs), true}));
    }
  }
}

Cells Normaliser::other_strings(const std::vector<std::string_view>& words) {
  std::string id = "words";
  for (const std::string_view word : words) (id += " " + std::to_string(word.size()) + ":") += word;
  Cells out = Cells::everything();
  out.strings = {{.contents = {outside({std::move(id), literal_set(words)})}}};
  return out;
}

Cells Normaliser::other_than(NodeId id, const Value& value) {
  Cells out = Cells::everything();
  switch (value.type) {
    case Type::null:
      out.null = false;
      return out;
    case Type::boolean:
      out.booleans[value.boolean] = false;
      return out;
    case Type::number:
      out.numbers = {{.excluded = {Decimal::parse(value.text)}}};
      return out;
    case Type::string:
      return other_strings({value.text});
    case Type::array: {
      const uint64_t length = value.items.size();
      out.arrays.clear();
      if (length > 0) out.arrays.push_back({.max = length - 1});
      out.arrays.push_back({.min = length + 1});
      for (size_t i = 0; i < length; ++i) {
        ArrayCell cell{.prefix = std::vector<ConjunctionId>(i + 1, 0), .min = length, .max = length};
        cell.prefix[i] = conjunctions_.single({document_.constant(id, {.index = i}, value.items[i]), true});
        out.arrays.push_back(std::move(cell));
      }
      return out;
    }
    case Type::object: {
      out.objects.clear();
      Members same;
      for (const auto& [name, member] : value.members) {
        out.objects.push_back({.members = {{.named = {{name, nothing()}}}}});
        const ConjunctionId other = conjunctions_.single({document_.constant(id, {.name = &name}, member), true});
        out.objects.push_back({.members = {{.named = {{name, other}}}}, .required = {name}});
      }
      out.objects.push_back({.min = value.members.size() + 1});
      return out;
    }
  }
  return out;
}

}  // namespace constrain::schema
