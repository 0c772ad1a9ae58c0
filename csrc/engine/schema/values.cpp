// The keywords `const` and `enum`, and conditions on strings and keys.
#include <algorithm>

#include "engine/schema/length_language.h"
#include "engine/schema/normalise.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

/// True if the value contains an integer at any depth; integers have few spellings.
bool has_integer(const json::Value& value) {
  const auto inside = [](const auto& member) { return has_integer(member.second); };
  return (value.is(Type::number) && Decimal::parse(value.text).is_integer()) ||
         std::ranges::any_of(value.items, has_integer) || std::ranges::any_of(value.members, inside);
}

}  // namespace

Cells Normaliser::constant_value(NodeId id, const Value& value) {
  if (has_integer(value)) report_integers(id, "const");
  return this->value(document_.constant(id, {"const"}, value), value);
}

Cells Normaliser::values(NodeId id, const char* keyword, const Value& list) {
  if (!list.is(Type::array)) invalid(id, keyword, "an array of values is needed");
  // All strings share one cell, and all numbers, so that large enums are one automaton.
  Cells any;
  NumberCell numbers{.range = {.max_digits_with_point = digits_with_point()}, .values = std::vector<Decimal>()};
  StringCell strings{.words = std::set<std::string_view>()};
  for (size_t i = 0; i < list.items.size(); ++i) {
    const Value& item = list.items[i];
    if (item.is(Type::number)) {
      numbers.values->push_back(Decimal::parse(item.text));
    } else if (item.is(Type::string)) {
      strings.words->emplace(item.text);
    } else {
      unite(any, value(document_.constant(id, item_step(keyword, i), item), item));
    }
  }
  if (!numbers.values->empty()) any.numbers.push_back(std::move(numbers));
  if (!strings.words->empty()) any.strings.push_back(std::move(strings));
  if (has_integer(list)) report_integers(id, keyword);
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
      cells.numbers.push_back(
          {.range = {.max_digits_with_point = digits_with_point()}, .values = std::vector{Decimal::parse(value.text)}});
      break;
    case Type::string:
      cells.strings.push_back({.words = std::set{value.text}});
      break;
    case Type::array: {
      ArrayCell cell;
      for (size_t i = 0; i < value.items.size(); ++i) {
        cell.prefix.push_back(conjunctions_.single({document_.constant(id, {.index = i}, value.items[i])}));
      }
      cell.min = cell.max = value.items.size();
      cells.arrays.push_back(std::move(cell));
      break;
    }
    case Type::object: {
      ObjectCell cell;
      Members members;
      for (const auto& [name, member] : value.members) {
        members.named.emplace_back(name, conjunctions_.single({document_.constant(id, {.name = &name}, member)}));
        cell.required.emplace_back(name);
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

}  // namespace constrain::schema
