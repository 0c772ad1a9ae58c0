#include "engine/schema/equal_values.h"

#include <functional>
#include <string>

namespace constrain::schema {

using json::Value;

namespace {

uint64_t mixed(uint64_t hash, uint64_t next) {
  hash = (hash ^ next) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 32;
}

bool is_identifier(const std::string& key, const Value& value) {
  const bool names = key == "$id" || key == "id" || key == "$anchor" || key == "$dynamicAnchor";
  return (names && value.is(Value::Type::string)) || key == "$recursiveAnchor";
}

}  // namespace

const Value& EqualValues::first(const Value& value) {
  const Summary summary = this->summary(value);
  if (summary.named) return value;
  const auto [begin, end] = first_.equal_range(summary.hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second == &value || *it->second == value) return *it->second;
  }
  first_.emplace(summary.hash, &value);
  return value;
}

EqualValues::Summary EqualValues::summary(const Value& value) {
  if (value.items.empty() && value.members.empty()) return combine(value);
  const auto it = summaries_.find(&value);
  return it != summaries_.end() ? it->second : summaries_.emplace(&value, combine(value)).first->second;
}

EqualValues::Summary EqualValues::combine(const Value& value) {
  const std::hash<std::string> hash_of;
  Summary out{mixed(static_cast<uint64_t>(value.type) * 2 + value.boolean, hash_of(value.text)), false};
  for (const Value& item : value.items) {
    const Summary inner = summary(item);
    out = {mixed(out.hash, inner.hash), out.named || inner.named};
  }
  for (const auto& [key, member] : value.members) {
    const Summary inner = summary(member);
    out = {mixed(mixed(out.hash, hash_of(key)), inner.hash), out.named || inner.named || is_identifier(key, member)};
  }
  return out;
}

}  // namespace constrain::schema
