#include "engine/schema/normalise.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/formats.h"
#include "engine/schema/length_language.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// Thrown where a judgement needs a literal that is still being read.
struct NotYet {};

/// Does something at the end of a block, however it is left.
template <class Action>
struct Leave {
  Action action;
  ~Leave() { action(); }
};
template <class Action>
Leave(Action) -> Leave<Action>;

/// Pairs of cells that may be tried for each cell that there may be.
constexpr uint64_t kPairsPerCell = 16;

constexpr int kEmpty = -1;

/// Keywords that change which documents are valid and are not understood here.
constexpr const char* kUnsupported[] = {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"};

}  // namespace

void Normaliser::invalid(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::invalid, document_.pointer(id), keyword, reason);
}

void Normaliser::unsupported(NodeId id, const char* keyword, const std::string& reason) const {
  throw SchemaError(SchemaError::Kind::unsupported, document_.pointer(id), keyword, reason);
}

void Normaliser::charge(const Cells& cells, NodeId id) {
  cells_ += cells.count();
  if (cells_ > limits_.max_cells) throw ResourceLimit("max_cells", limits_.max_cells, "at #" + document_.pointer(id));
}

Cells Normaliser::meet(const Cells& a, const Cells& b, NodeId id) {
  const uint64_t pairs = a.numbers.size() * b.numbers.size() + a.strings.size() * b.strings.size() +
                         a.arrays.size() * b.arrays.size() + a.objects.size() * b.objects.size();
  pairs_ += pairs;
  if (pairs > limits_.max_cells || pairs_ > kPairsPerCell * limits_.max_cells)
    throw ResourceLimit("max_cells", limits_.max_cells, "at #" + document_.pointer(id));
  Cells both = intersect(a, b, conjunctions_);
  prune(both, kPruneDepth);
  return both;
}

const Cells& Normaliser::conjunction(ConjunctionId id) {
  if (const auto it = known_.find(id); it != known_.end()) return it->second;
  Cells cells = Cells::everything();
  const std::vector<Literal> members = conjunctions_[id];
  for (const Literal member : members) {
    cells = members.size() == 1 ? literal(member) : meet(cells, literal(member), member.node);
  }
  if (members.size() > 1) charge(cells, members.front().node);
  return known_.emplace(id, std::move(cells)).first->second;
}

const Cells& Normaliser::literal(Literal literal) {
  if (const auto it = literals_.find(literal); it != literals_.end()) return it->second;
  if (!under_way_.insert(literal).second) {
    if (speculating_ > 0) throw NotYet();
    invalid(literal.node, "$ref", "the reference leads back to itself without entering a value");
  }
  if (under_way_.size() > limits_.max_nesting) {
    throw ResourceLimit("max_nesting", limits_.max_nesting, "at #" + document_.pointer(literal.node));
  }
  const Leave leave{[&] { under_way_.erase(literal); }};
  Cells cells = literal.negated ? negate(literal.node) : expand(literal.node);
  charge(cells, literal.node);
  return literals_.emplace(literal, std::move(cells)).first->second;
}

Cells Normaliser::expand(NodeId id) {
  const Value& schema = *document_[id].value;
  if (document_[id].constant) return value(id, schema);
  if (schema.is(Type::boolean)) return schema.boolean ? Cells::everything() : Cells();
  if (!schema.is(Type::object)) invalid(id, "", "a schema is an object or a boolean");

  const Value* reference = schema.find("$ref");
  if (reference && !reference->is(Type::string)) invalid(id, "$ref", "a reference is a string");
  if (reference && document_.dialect() <= Dialect::draft7) return literal({document_.resolve(id, reference->text)});
  refuse_unsupported(id, schema);

  Cells cells = Cells::everything();
  read_types(id, schema, cells);
  if (!cells.numbers.empty()) read_numbers(id, schema, cells.numbers.front());
  if (!cells.strings.empty()) read_strings(id, schema, cells.strings.front());
  if (!cells.arrays.empty()) read_arrays(id, schema, cells.arrays.front());
  if (!cells.objects.empty()) read_objects(id, schema, cells.objects.front());

  const auto also = [&](const Cells& other) { cells = meet(cells, other, id); };
  if (const Value* constant = schema.find("const")) {
    also(value(document_.constant(id, "const", *constant), *constant));
    enforced(id, "const");
  }
  if (const Value* list = schema.find("enum")) also(values(id, "enum", *list));
  if (reference) also(literal({document_.resolve(id, reference->text)}));
  if (!cells.objects.empty()) read_dependencies(id, schema, cells);
  if (const Value* all = schema.find("allOf")) also(all_of(id, "allOf", *all, false));
  if (const Value* any = schema.find("anyOf")) also(any_of(id, "anyOf", *any, false));
  if (const Value* one = schema.find("oneOf")) also(one_of(id, *one));
  if (const Value* other = schema.find("not")) {
    also(literal({part(id, "not", *other), true}));
    enforced(id, "not");
  }
  if (schema.find("if")) also(if_then_else(id, schema, false));
  prune(cells, kPruneDepth);
  return cells;
}

Cells Normaliser::any_of(NodeId id, const char* keyword, const Value& list, bool negated) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  Cells any;
  for (size_t i = 0; i < list.items.size(); ++i) {
    unite(any, literal({document_.child(id, item_step(keyword, i), list.items[i]), negated}));
  }
  enforced(id, keyword);
  return any;
}

Cells Normaliser::all_of(NodeId id, const char* keyword, const Value& list, bool negated) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, keyword, "a non-empty array of schemas is needed");
  Cells all = Cells::everything();
  for (size_t i = 0; i < list.items.size(); ++i) {
    all = meet(all, literal({document_.child(id, item_step(keyword, i), list.items[i]), negated}), id);
  }
  enforced(id, keyword);
  return all;
}

Cells Normaliser::one_of(NodeId id, const Value& list) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, "oneOf", "a non-empty array of schemas is needed");
  std::vector<NodeId> branches;
  for (size_t i = 0; i < list.items.size(); ++i)
    branches.push_back(document_.child(id, item_step("oneOf", i), list.items[i]));
  Cells one;
  for (const NodeId branch : branches) {
    Cells only = literal({branch});
    for (const NodeId other : branches) {
      if (other == branch) continue;
      // A branch that excludes this one anyway need not be negated, which is what keeps unions small.
      if (!meet(only, literal({other}), id).empty()) only = meet(only, literal({other, true}), id);
    }
    unite(one, std::move(only));
  }
  enforced(id, "oneOf");
  return one;
}

Cells Normaliser::if_then_else(NodeId id, const Value& schema, bool negated) {
  const Value *then = schema.find("then"), *otherwise = schema.find("else");
  if (!then && !otherwise) return negated ? Cells() : Cells::everything();
  const NodeId condition = part(id, "if", *schema.find("if"));
  const auto branch = [&](bool holds, const Value* consequence, const char* keyword) {
    Cells cells = literal({condition, !holds});
    if (consequence) {
      cells = meet(cells, literal({part(id, keyword, *consequence), negated}), id);
    } else if (negated) {
      cells = Cells();
    }
    return cells;
  };
  Cells either = branch(true, then, "then");
  unite(either, branch(false, otherwise, "else"));
  enforced(id, "if");
  return either;
}

void Normaliser::refuse_unsupported(NodeId id, const Value& schema) {
  const auto refuse = [&](const char* keyword) {
    if (!lenient_) unsupported(id, keyword, "this keyword cannot be enforced");
    report_.add(report_.ignored, document_.pointer(id), keyword, "this keyword cannot be enforced");
  };
  for (const char* keyword : kUnsupported) {
    if (schema.find(keyword)) refuse(keyword);
  }
  // An array of one item at most has no two that are alike.
  const Value* unique = count(id, schema, "maxItems").value_or(kInfinite) > 1 ? schema.find("uniqueItems") : nullptr;
  if (unique && unique->is(Type::boolean) && unique->boolean) refuse("uniqueItems");
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
      report_.add(report_.narrowed, document_.pointer(id), "type",
                  "integers are written without fraction and exponent");
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
    if (auto content = pattern(id, "pattern", text->text, Classes::inner)) {
      cell.contents.push_back(std::move(*content));
      enforced(id, "pattern");
    }
  }
  if (const Value* name = schema.find("format"); name && name->is(Type::string)) {
    if (const auto format = make_format(name->text)) {
      cell.contents.push_back({"format " + name->text, format->inner});
      enforced(id, "format");
    } else {
      report_.add(report_.ignored, document_.pointer(id), "format",
                  "'" + name->text + "' is no standard format: an annotation");
    }
  }
}

std::optional<Content> Normaliser::pattern(NodeId id, const char* keyword, const std::string& pattern,
                                           Classes classes) {
  try {
    const RegexOptions options{.dialect = constrain::Dialect::ecma, .classes = classes, .search = true};
    return Content{(classes == Classes::outer ? "outer pattern " : "pattern ") + pattern,
                   compile_regex(pattern, options)};
  } catch (const RegexError& error) {
    const std::string reason =
        "the regular expression '" + pattern + "', at offset " + std::to_string(error.offset) + ": " + error.what();
    if (!lenient_) unsupported(id, keyword, reason);
    report_.add(report_.ignored, document_.pointer(id), keyword, reason);
    return std::nullopt;
  }
}

std::optional<Content> Normaliser::doubtful_keys(NodeId id, const std::string& text, const Content& keys) {
  const Content outer = *pattern(id, "patternProperties", text, Classes::outer);
  AutomatonPtr language = subtract(outer.language, keys.language);
  if (is_empty(*language)) return std::nullopt;
  return Content{"doubtful " + text, std::move(language)};
}

ConjunctionId Normaliser::subschema(NodeId id, std::string step, const Value& schema, bool negated) {
  const bool everything =
      (schema.is(Type::boolean) && schema.boolean) || (schema.is(Type::object) && schema.members.empty());
  if (everything) return negated ? nothing() : 0;
  return conjunctions_.intern({{document_.child(id, std::move(step), schema), negated}});
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
  if (const Value* contains = schema.find("contains")) {
    const uint64_t min = count(id, schema, "minContains").value_or(1);
    const uint64_t max = count(id, schema, "maxContains").value_or(kInfinite);
    if (min > max) {
      cell.min = 1, cell.max = 0;
    } else if (max == 0) {
      cell.rest = conjunctions_.join(cell.rest, subschema(id, "contains", *contains, true));
      for (ConjunctionId& item : cell.prefix)
        item = conjunctions_.join(item, subschema(id, "contains", *contains, true));
    } else if (min > 0 || max != kInfinite) {
      cell.contains.push_back({.schema = subschema(id, "contains", *contains), .min = min, .max = max});
    }
    enforced(id, "contains");
  }
}

const json::Value* Normaliser::object(NodeId id, const Value& schema, const char* keyword) {
  const Value* value = schema.find(keyword);
  if (value && !value->is(Type::object)) invalid(id, keyword, "an object of schemas is needed");
  if (value) enforced(id, keyword);
  return value;
}

void Normaliser::read_objects(NodeId id, const Value& schema, ObjectCell& cell) {
  cell.min = count(id, schema, "minProperties").value_or(0);
  cell.max = count(id, schema, "maxProperties").value_or(kInfinite);
  Members members;
  const Value* properties = object(id, schema, "properties");
  const Value* patterns = object(id, schema, "patternProperties");
  const Value* additional = schema.find("additionalProperties");
  if (properties) {
    for (const auto& [name, value] : properties->members) {
      members.named.emplace_back(name, subschema(id, member_step("properties", name), value));
    }
  }
  static const std::vector<Value::Member> kNone;
  for (const auto& [text, value] : patterns ? patterns->members : kNone) {
    if (auto keys = pattern(id, "patternProperties", text, Classes::inner)) {
      auto doubtful = doubtful_keys(id, text, *keys);
      members.patterns.push_back(
          {std::move(*keys), std::move(doubtful), subschema(id, member_step("patternProperties", text), value)});
    } else if (additional) {
      // Which keys are additional is not known without the pattern.
      report_.add(report_.ignored, document_.pointer(id), "additionalProperties", "a pattern beside it is left out");
      additional = nullptr;
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

void Normaliser::read_dependencies(NodeId id, const Value& schema, Cells& cells) {
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Value* dependencies = object(id, schema, keyword);
    if (!dependencies) continue;
    for (const auto& [name, needs] : dependencies->members) {
      if (needs.is(Type::array) || needs.is(Type::string)) {  // draft-03 had a single name there
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
      for (ObjectCell& cell : present.objects) cell.required.push_back(name);
      absent.objects.insert(absent.objects.end(), present.objects.begin(), present.objects.end());
      cells = meet(cells, absent, id);
    }
  }
}

Cells Normaliser::values(NodeId id, const char* keyword, const Value& list) {
  if (!list.is(Type::array)) invalid(id, keyword, "an array of values is needed");
  // One cell for all strings and one for all numbers, so that large enums stay one automaton.
  Cells any;
  NumberCell numbers{.values = std::vector<Decimal>()};
  StringCell strings{.words = std::set<std::string>()};
  for (size_t i = 0; i < list.items.size(); ++i) {
    const Value& item = list.items[i];
    if (item.is(Type::number)) {
      numbers.values->push_back(Decimal::parse(item.text));
    } else if (item.is(Type::string)) {
      strings.words->insert(item.text);
    } else {
      unite(any, value(document_.constant(id, item_step(keyword, i), item), item));
    }
  }
  if (!numbers.values->empty()) any.numbers.push_back(std::move(numbers));
  if (!strings.words->empty()) any.strings.push_back(std::move(strings));
  enforced(id, keyword);
  return any;
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
      cells.numbers.push_back({.values = std::vector{Decimal::parse(value.text)}});
      break;
    case Type::string:
      cells.strings.push_back({.words = std::set{value.text}});
      break;
    case Type::array: {
      ArrayCell cell;
      for (size_t i = 0; i < value.items.size(); ++i) {
        cell.prefix.push_back(conjunctions_.intern({{document_.constant(id, std::to_string(i), value.items[i])}}));
      }
      cell.min = cell.max = value.items.size();
      cells.arrays.push_back(std::move(cell));
      break;
    }
    case Type::object: {
      ObjectCell cell;
      Members members;
      for (const auto& [name, member] : value.members) {
        members.named.emplace_back(name, conjunctions_.intern({{document_.constant(id, name, member)}}));
        cell.required.push_back(name);
      }
      members.additional = nothing();
      cell.members.push_back(std::move(members));
      cells.objects.push_back(std::move(cell));
    }
  }
  return cells;
}

AutomatonPtr Normaliser::content(const StringCell& cell) {
  if (cell.words) return literal_set({cell.words->begin(), cell.words->end()});
  AutomatonPtr language;
  for (const Content& one : cell.contents) {
    language = language ? constrain::intersect(language, one.language) : one.language;
  }
  const bool bounded = cell.min > 0 || cell.max != kInfinite;
  if (!language) return bounded ? length_language(cell.min, cell.max) : any_text();
  return bounded ? constrain::intersect(language, length_language(cell.min, cell.max)) : language;
}

Content Normaliser::key_language(ConjunctionId id) {
  std::vector<AutomatonPtr> parts;
  for (const StringCell& cell : conjunction(id).strings) parts.push_back(content(cell));
  return {"names " + std::to_string(id), parts.empty() ? empty_language() : constrain::unite(std::move(parts))};
}

// ---- Cells without instances.

void Normaliser::prune(Cells& cells, int depth) {
  std::erase_if(cells.strings, [](const StringCell& cell) { return cell.min > cell.max; });
  std::erase_if(cells.objects, [&](const ObjectCell& cell) { return empty(cell, depth); });
  std::erase_if(cells.arrays, [&](const ArrayCell& cell) { return empty(cell, depth); });
}

bool Normaliser::empty(ConjunctionId id, int depth) {
  if (id == 0 || depth == 0) return false;
  if (const auto it = inhabited_.find(id); it != inhabited_.end() && (it->second == kEmpty || it->second >= depth)) {
    return it->second == kEmpty;
  }
  if (!conjunctions_under_way_.insert(id).second) return false;
  const Leave leave{[&] { conjunctions_under_way_.erase(id), --speculating_; }};
  ++speculating_;
  try {
    Cells cells = conjunction(id);
    prune(cells, depth - 1);
    inhabited_[id] = cells.empty() ? kEmpty : depth;
    return cells.empty();
  } catch (const NotYet&) {
    return false;
  }
}

bool Normaliser::empty(const ObjectCell& cell, int depth) {
  if (cell.min > cell.max || cell.required.size() > cell.max) return true;
  return std::any_of(cell.required.begin(), cell.required.end(),
                     [&](const std::string& name) { return empty(value_of(cell, name, conjunctions_), depth); });
}

bool Normaliser::empty(const ArrayCell& cell, int depth) {
  if (cell.min > cell.max) return true;
  for (uint64_t i = 0; i < std::min<uint64_t>(cell.min, cell.prefix.size() + 1); ++i) {
    if (empty(i < cell.prefix.size() ? cell.prefix[i] : cell.rest, depth)) return true;
  }
  return false;
}

ConjunctionId value_of(const ObjectCell& cell, const std::string& name, Conjunctions& conjunctions) {
  ConjunctionId value = 0;
  for (const Members& members : cell.members) {
    bool found = false;
    const auto apply = [&](ConjunctionId schema) { value = conjunctions.join(value, schema), found = true; };
    for (const auto& [known, schema] : members.named) {
      if (known == name) apply(schema);
    }
    for (const KeyPattern& pattern : members.patterns) {
      if (matches(*pattern.keys.language, name)) apply(pattern.schema);
      if (pattern.doubtful && matches(*pattern.doubtful->language, name))
        value = conjunctions.join(value, pattern.schema);
    }
    if (!found) value = conjunctions.join(value, members.additional);
  }
  return value;
}

}  // namespace constrain::schema
