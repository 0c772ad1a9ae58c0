// `oneOf`: each branch without the others that it may overlap.
#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
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
    for (const std::string_view word : *cell.words) values.push_back('"' + std::string(word));
  }
  for (const NumberCell& cell : cells.numbers) {
    if (!cell.values) return std::nullopt;
    std::ranges::transform(*cell.values, std::back_inserter(values), text_of);
  }
  return values;
}

/// Listed values that all documents of a branch have: of the document itself, or of a member by its name after a dot.
using Tags = std::map<std::string, std::vector<std::string>>;

/// Finds branches that may overlap: tags with different values exclude each other.
class BranchIndex {
 public:
  explicit BranchIndex(std::vector<Tags> tags) : tags_(std::move(tags)) {
    for (size_t i = 0; i < tags_.size(); ++i) {
      for (const auto& [tag, values] : tags_[i]) {
        Holders& holders = holders_[tag];
        ++holders.count;
        for (const std::string& value : values) holders.by_value[value].push_back(i);
      }
    }
  }

  /// The other branches that a branch may overlap, in order.
  std::vector<size_t> rivals(size_t branch) const {
    const std::string* best = nullptr;
    size_t fewest = tags_.size();
    for (const auto& [tag, values] : tags_[branch]) {
      const Holders& holders = holders_.at(tag);
      size_t count = tags_.size() - holders.count;
      for (const std::string& value : values) count += holders.by_value.at(value).size();
      if (count < fewest) best = &tag, fewest = count;
    }
    std::vector<size_t> found;
    if (!best || holders_.at(*best).count < tags_.size()) {
      for (size_t i = 0; i < tags_.size(); ++i) {
        if (!best || !tags_[i].contains(*best)) found.push_back(i);
      }
    }
    if (best) {
      for (const std::string& value : tags_[branch].at(*best)) {
        const std::vector<size_t>& same = holders_.at(*best).by_value.at(value);
        found.insert(found.end(), same.begin(), same.end());
      }
    }
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    std::erase(found, branch);
    return found;
  }

 private:
  struct Holders {
    size_t count = 0;  // branches with the tag
    std::unordered_map<std::string, std::vector<size_t>> by_value;
  };

  std::vector<Tags> tags_;
  std::unordered_map<std::string, Holders> holders_;
};

}  // namespace

std::optional<std::vector<std::string>> Normaliser::values_of_member(const Cells& cells, std::string_view name) {
  std::vector<std::string> all;
  for (const ObjectCell& cell : cells.objects) {
    if (std::ranges::find(cell.required, name) == cell.required.end()) return std::nullopt;
    const Cells* value = known(MemberValues(cell, conjunctions_)[name]);
    const auto values = value ? listed_values(*value) : std::nullopt;
    if (!values) return std::nullopt;
    all.insert(all.end(), values->begin(), values->end());
  }
  return all;
}

Cells Normaliser::one_of(NodeId id, const Value& list, const Cells& cells) {
  if (!list.is(Type::array) || list.items.empty()) invalid(id, "oneOf", "a non-empty array of schemas is needed");
  constexpr size_t kMostMembers = 16;  // required members of a branch that are looked at
  std::vector<NodeId> branches;
  for (size_t i = 0; i < list.items.size(); ++i) branches.push_back(item(id, "oneOf", list, i));
  std::unordered_map<NodeId, size_t> times;
  std::vector<Tags> tags;
  for (const NodeId branch : branches) {
    ++times[branch];
    Tags& own = tags.emplace_back();
    const Cells& all = literal({branch});
    if (auto values = listed_values(all)) own[""] = std::move(*values);
    if (all.objects.empty() || !has_only(all, all.objects.size())) continue;
    for (const std::string_view name : all.objects.front().required | std::views::take(kMostMembers)) {
      if (auto values = values_of_member(all, name)) own["." + std::string(name)] = std::move(*values);
    }
  }
  const BranchIndex index(std::move(tags));
  Cells one;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (times[branches[i]] > 1) continue;  // equivalent to its twin
    Cells own = satisfying(cells, {branches[i]});
    for (const size_t other : index.rivals(i)) own = without(std::move(own), branches[other]);
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
