#include "engine/json/object/object_shape.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/interner.h"
#include "engine/grammar/parse_table.h"

namespace constrain::json {

ObjectShape::ObjectShape(ObjectSpec given) : spec(std::move(given)) {
  is_plain = spec.dependents.empty() && !spec.in_order && !spec.duties;
  required.resize(names_words());
  find_closure();
  for (uint32_t name = 0; name < spec.properties.size(); ++name) {
    if (spec.properties[name].required) insert(required, name);
  }
  add_needed(required);
}

void ObjectShape::find_closure() {
  if (spec.dependents.empty()) return;
  std::vector<std::vector<uint32_t>> needs(spec.properties.size());
  for (const auto& [name, needed] : spec.dependents) needs[name].push_back(needed);
  std::vector<uint32_t> found;
  for (uint32_t name = 0; name < needs.size(); ++name) {
    std::vector<uint64_t>& reached = closure.emplace_back(names_words());
    insert(reached, name);
    found.assign(1, name);
    while (!found.empty()) {
      const std::vector<uint32_t>& next = needs[found.back()];
      found.pop_back();
      for (const uint32_t needed : next) {
        if (!has(reached, needed)) insert(reached, needed), found.push_back(needed);
      }
    }
  }
}

void ObjectShape::prepare(const ParseTable& grammar, const Lengths& lengths) {
  possible.clear(), possible_others.clear(), wanted_keys.clear();
  const auto drop_empty = [&](ObjectSpec::Choices& choices) {
    const auto rest = std::ranges::remove_if(std::span(spec.values).subspan(choices.first, choices.count),
                                             [&](const auto& choice) { return lengths[choice.value] == kInfinite; });
    choices.count -= static_cast<uint32_t>(rest.size());
  };
  std::vector<std::string> names;
  names.reserve(spec.properties.size()), possible.reserve(spec.properties.size());
  for (auto& property : spec.properties) {
    names.push_back(property.name);
    for (const char byte : property.name) name_bytes.add(static_cast<uint8_t>(byte));
    drop_empty(property.choices);
  }
  for (uint32_t name = 0; name < names.size(); ++name) {
    possible.push_back(needs_only(name, [&](uint32_t needed) { return !spec.properties[needed].choices.empty(); }));
  }
  std::vector<KeyLanguagePtr> classes;
  for (uint32_t i = 0; i < spec.others.size(); ++i) {
    drop_empty(spec.others[i].choices);
    if (spec.others[i].choices.empty() || is_empty(spec.others[i].keys->automaton())) continue;
    possible_others.push_back(i);
    classes.push_back(spec.others[i].keys);
  }
  keys = std::make_unique<KeyAutomaton>(names, std::move(classes));
  spellings.reset(*keys);
  place.resize(spec.properties.size());
  outlined_names.assign(names_words(), 0);
  whole_keys = grammar.tokens().quoted;
  for (uint32_t at = 0; at < place.size(); ++at) {
    const uint32_t name = keys->sorted()[at];
    place[name] = at;
    if (is_outlined(spec.properties[name].name)) insert(outlined_names, at);
  }
  outlined_words.clear();
  for (uint32_t word = 0; word < outlined_names.size(); ++word) {
    if (outlined_names[word]) outlined_words.push_back(word);
  }
  grammar_ = &grammar;
  alike_.clear();
}

uint32_t ObjectShape::alike(uint32_t label) {
  if (alike_.empty()) find_alike();
  return alike_[label];
}

void ObjectShape::find_alike() {
  const size_t labels = spec.properties.size() + possible_others.size();
  SequenceInterner values;
  std::vector<uint32_t> first, key;
  alike_.reserve(labels), first.reserve(labels), key.reserve(8);
  for (uint32_t label = 0; label < labels; ++label) {
    // Neighbours with the same rules, of which large objects have thousands, need no look at these.
    if (label > 0 && std::ranges::equal(choices(label), choices(label - 1))) {
      alike_.push_back(alike_.back());
      continue;
    }
    key.clear();
    for (const auto& choice : choices(label)) {
      std::span<const RuleId> parts = grammar_->union_of(choice.value);
      if (parts.empty()) parts = {&choice.value, 1};
      key.insert(key.end(), {choice.duties, static_cast<uint32_t>(parts.size())});
      key.insert(key.end(), parts.begin(), parts.end());
    }
    const uint32_t id = values.intern(key);
    if (id == first.size()) first.push_back(label);
    alike_.push_back(first[id]);
  }
}

void ObjectShape::add_needed(std::vector<uint64_t>& names) const {
  if (closure.empty()) return;
  std::vector<uint64_t> left = names;
  for (size_t word = 0; word < left.size(); ++word) {
    while (left[word]) {
      const std::vector<uint64_t>& with = closure[64 * word + static_cast<size_t>(std::countr_zero(left[word]))];
      for (size_t i = 0; i < names.size(); ++i) names[i] |= with[i], left[i] &= ~with[i];
    }
  }
}

std::vector<uint64_t> ObjectShape::needed(const std::vector<uint64_t>& seen) const {
  std::vector<uint64_t> all = seen;
  add_needed(all);
  for (size_t word = 0; word < all.size(); ++word) all[word] |= required[word];
  return all;
}

bool ObjectShape::is_name(const std::string& key) const {
  return std::any_of(spec.properties.begin(), spec.properties.end(),
                     [&](auto& property) { return property.name == key; });
}

}  // namespace constrain::json
