#include "engine/schema/equal_values.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace constrain::schema {

using json::Value;

namespace {

uint64_t mixed(uint64_t hash, uint64_t next) {
  hash = (hash ^ next) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 32;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    hash = mixed(hash, word);
  }
  return hash;
}

bool is_identifier(std::string_view key, const Value& value) {
  if (!key.starts_with('$') && key != "id") return false;
  const bool names = key == "$id" || key == "id" || key == "$anchor" || key == "$dynamicAnchor";
  return (names && value.is(Value::Type::string)) || key == "$recursiveAnchor";
}

/// What a member is, by what its container holds.
struct Role {
  Holds holds;
  bool annotation = false;  ///< a schema accepts the same documents without it, with the same report
};

Role role_of(std::string_view key, Holds container) {
  if (container != Holds::schema) return {container == Holds::value ? Holds::value : Holds::schema};
  const Keyword* keyword = find_keyword(key);
  if (!keyword) return {Holds::value};
  return {keyword->holds, keyword->group == Group::annotation};
}

Holds items_of(Holds container) { return container == Holds::value ? Holds::value : Holds::schema; }

bool are_equal(const Value& one, const Value& other, Holds holds);

bool have_equal_members(const Value& one, const Value& other, Holds holds) {
  const auto skip = [&](auto& at, const Value& value) {
    while (at != value.members.end() && role_of(at->first, holds).annotation) ++at;
    return at == value.members.end();
  };
  auto a = one.members.begin(), b = other.members.begin();
  for (;; ++a, ++b) {
    const bool over = skip(a, one), other_over = skip(b, other);
    if (over || other_over) return over == other_over;
    if (a->first != b->first || !are_equal(a->second, b->second, role_of(a->first, holds).holds)) return false;
  }
}

bool are_equal(const Value& one, const Value& other, Holds holds) {
  if (&one == &other) return true;
  const auto equal_items = [&](const Value& a, const Value& b) { return are_equal(a, b, items_of(holds)); };
  return one.type == other.type && one.boolean == other.boolean && one.text == other.text &&
         std::ranges::equal(one.items, other.items, equal_items) && have_equal_members(one, other, holds);
}

}  // namespace

Holds holds_below(Holds container, const std::string_view* key) {
  return key ? role_of(*key, container).holds : items_of(container);
}

const Value& EqualValues::first(const Value& value, Holds holds) {
  const auto [it, added] = found_.try_emplace({&value, holds}, nullptr);
  if (added) it->second = &find(value, holds);
  return *it->second;
}

const Value& EqualValues::find(const Value& value, Holds holds) {
  const auto [it, added] = alone_.try_emplace(outline(value, holds), &value, holds);
  if (added) return value;
  if (const auto [other, what] = std::exchange(it->second, {}); other) first_equal(*other, what);
  return first_equal(value, holds);
}

/// Equal values have equal outlines, which few others have.
uint64_t EqualValues::outline(const Value& value, Holds holds) const {
  uint64_t hash = mixed(static_cast<uint64_t>(value.type) * 2 + value.boolean, hash_of(value.text));
  hash = mixed(hash, value.items.size() * 8 + static_cast<uint64_t>(holds));
  for (const auto& [key, member] : value.members) {
    const Role role = role_of(key, holds);
    if (role.annotation) continue;
    hash = mixed(mixed(hash, hash_of(key)), hash_of(member.text));
    if (role.holds != Holds::map) continue;
    for (const auto& [name, unused] : member.members) hash = mixed(hash, hash_of(name));
  }
  return hash;
}

const Value& EqualValues::first_equal(const Value& value, Holds holds) {
  const Summary summary = this->summary(value, holds);
  if (summary.named) return value;
  const auto [begin, end] = first_.equal_range(summary.hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second.second == holds && are_equal(*it->second.first, value, holds)) return *it->second.first;
  }
  first_.emplace(summary.hash, Place(&value, holds));
  return value;
}

EqualValues::Summary EqualValues::summary(const Value& value, Holds holds) {
  if (value.items.empty() && value.members.empty()) return combine(value, holds);
  const Place place(&value, holds);
  const auto it = summaries_.find(place);
  return it != summaries_.end() ? it->second : summaries_.emplace(place, combine(value, holds)).first->second;
}

EqualValues::Summary EqualValues::combine(const Value& value, Holds holds) {
  Summary sum{mixed(static_cast<uint64_t>(value.type) * 2 + value.boolean, hash_of(value.text)), false};
  for (const Value& item : value.items) {
    const Summary inner = summary(item, items_of(holds));
    sum = {mixed(sum.hash, inner.hash), sum.named || inner.named};
  }
  for (const Value::Member& member : value.members) add_member(member, holds, sum);
  return sum;
}

void EqualValues::add_member(const Value::Member& member, Holds holds, Summary& sum) {
  const auto& [key, value] = member;
  sum.named |= is_identifier(key, value);
  const Role role = role_of(key, holds);
  if (role.annotation && role.holds == Holds::value) return;
  const Summary inner = summary(value, role.holds);
  sum.named |= inner.named;
  if (!role.annotation) sum.hash = mixed(mixed(sum.hash, hash_of(key)), inner.hash);
}

}  // namespace constrain::schema
