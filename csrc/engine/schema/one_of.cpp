// `oneOf`: each branch without the others that it may overlap.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "engine/schema/normalise.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;

bool has_only(const Cells& cells, size_t count) {
  return !cells.null && !cells.booleans[0] && !cells.booleans[1] && cells.count() == count;
}

std::string text_of(const Decimal& value) {
  return (value.negative ? "-" : "") + value.digits + "e" + std::to_string(value.exponent);
}

/// The values of cells as texts, if all are listed strings and numbers.
std::optional<std::vector<std::string>> listed_values(const Cells& cells) {
  if (!has_only(cells, cells.strings.size() + cells.numbers.size())) return std::nullopt;
  std::vector<std::string> values;
  for (const StringCell& cell : cells.strings) {
    if (!cell.words) return std::nullopt;
    for (const std::string& word : *cell.words) values.push_back('"' + word);
  }
  for (const NumberCell& cell : cells.numbers) {
    if (!cell.values) return std::nullopt;
    std::ranges::transform(*cell.values, std::back_inserter(values), text_of);
  }
  return values;
}

}  // namespace

Normaliser::Tags Normaliser::tags(const Cells& cells) {
  Tags tags;
  if (auto values = listed_values(cells)) tags[""] = std::move(*values);
  if (cells.objects.empty() || !has_only(cells, cells.objects.size())) return tags;
  const auto values_of = [&](const std::string& name) {
    std::optional<std::vector<std::string>> all(std::in_place);
    for (const ObjectCell& cell : cells.objects) {
      if (std::ranges::find(cell.required, name) == cell.required.end()) return decltype(all)();
      const Cells* value = known(MemberValues(cell, conjunctions_)[name]);
      const auto values = value ? listed_values(*value) : std::nullopt;
      if (!values) return decltype(all)();
      all->insert(all->end(), values->begin(), values->end());
    }
    return all;
  };
  for (const std::string& name : cells.objects.front().required) {
    if (auto values = values_of(name)) tags["." + name] = std::move(*values);
  }
  return tags;
}

std::vector<std::vector<size_t>> Normaliser::rivals(const std::vector<NodeId>& branches) {
  struct Index {
    std::unordered_map<std::string, std::vector<size_t>> by_value;
    std::vector<size_t> untagged;
  };
  std::vector<Tags> tags;
  std::map<std::string, Index> indices;
  for (size_t i = 0; i < branches.size(); ++i) {
    tags.push_back(this->tags(literal({branches[i]})));
    for (const auto& [tag, values] : tags[i]) {
      for (const std::string& value : values) indices[tag].by_value[value].push_back(i);
    }
  }
  for (auto& [tag, index] : indices) {
    for (size_t i = 0; i < branches.size(); ++i) {
      if (!tags[i].contains(tag)) index.untagged.push_back(i);
    }
  }
  std::vector<size_t> all(branches.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<size_t>> rivals(branches.size(), all);
  for (size_t i = 0; i < branches.size(); ++i) {
    for (const auto& [tag, values] : tags[i]) {
      const Index& index = indices[tag];
      std::vector<size_t> found = index.untagged;
      for (const std::string& value : values) {
        const std::vector<size_t>& same = index.by_value.at(value);
        found.insert(found.end(), same.begin(), same.end());
      }
      std::ranges::sort(found);
      found.erase(std::ranges::unique(found).begin(), found.end());
      if (found.size() < rivals[i].size()) rivals[i] = std::move(found);
    }
    std::erase(rivals[i], i);
  }
  return rivals;
}

Cells Normaliser::one_of(NodeId id, const Value& list, const Cells& cells) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, "oneOf", "a non-empty array of schemas is needed");
  std::vector<NodeId> branches;
  std::unordered_map<NodeId, size_t> times;
  for (size_t i = 0; i < list.items.size(); ++i) branches.push_back(item(id, "oneOf", list, i));
  for (const NodeId branch : branches) ++times[branch];
  const std::vector<std::vector<size_t>> rivals = this->rivals(branches);
  Cells one;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (times[branches[i]] > 1) continue;  // equivalent to its twin
    Cells own = satisfying(cells, {branches[i]});
    for (const size_t other : rivals[i]) own = without(std::move(own), branches[other]);
    unite(one, std::move(own));
  }
  return one;
}

Cells Normaliser::without(Cells cells, NodeId schema) {
  // Negates the schema only for the cells that overlap it, which keeps unions small.
  Cells overlap;
  const Cells& wrong = literal({schema});
  const auto move_overlap = [&](auto Cells::* list) {
    std::erase_if(cells.*list, [&](auto& cell) {
      const bool overlaps = !meet(only(cell), wrong).empty();
      if (overlaps) (overlap.*list).push_back(std::move(cell));
      return overlaps;
    });
  };
  move_overlap(&Cells::numbers);
  move_overlap(&Cells::strings);
  move_overlap(&Cells::arrays);
  move_overlap(&Cells::objects);
  cells.null = cells.null && !wrong.null;
  for (int i = 0; i < 2; ++i) cells.booleans[i] = cells.booleans[i] && !wrong.booleans[i];
  if (!overlap.empty()) unite(cells, satisfying(overlap, {schema, true}));
  return cells;
}

}  // namespace constrain::schema
