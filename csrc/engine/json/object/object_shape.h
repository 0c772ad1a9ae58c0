// The members of an object schema, with all that is derived from them once.
#pragma once

#include <bit>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/json/object/key_spellings.h"
#include "engine/json/object/object_spec.h"

namespace constrain::json {

/// Sets of properties are bit sets.
inline bool has(const std::vector<uint64_t>& set, uint64_t name) { return set[name / 64] >> (name % 64) & 1; }
inline void insert(std::vector<uint64_t>& set, uint64_t name) { set[name / 64] |= uint64_t{1} << (name % 64); }

/// Calls `use(name)` for the properties in a set, in order, except those in `except`.
template <class Use>
void for_each_name(const std::vector<uint64_t>& set, const std::vector<uint64_t>& except, const Use& use) {
  for (size_t word = 0; word < set.size(); ++word) {
    for (uint64_t left = set[word] & ~except[word]; left; left &= left - 1) {
      use(static_cast<uint32_t>(64 * word) + static_cast<uint32_t>(std::countr_zero(left)));
    }
  }
}

/// Data that all frames of an object rule share. Written by `prepare`; read without a lock afterwards, except for
/// `keys`, `spellings` and `alike`, which grow under the grammar's lock.
struct ObjectShape {
  /// Keys besides the known names that one object may have.
  static constexpr uint64_t kMaxOtherKeys = 4096;

  /// Other keys that may be used before shortest completions may need one that is not in `wanted_keys`.
  static constexpr uint64_t kWantedBesideUsed = 16;

  explicit ObjectShape(ObjectSpec spec);

  /// Drops members without values, and numbers the keys.
  void prepare(const ParseTable& grammar, const Lengths& lengths);

  /// Words of a set of properties, and of a set of classes of other keys.
  size_t names_words() const { return (spec.properties.size() + 63) / 64; }
  size_t classes_words() const { return (possible_others.size() + 63) / 64; }

  /// The values of a member. Labels are the properties, followed by the classes of other keys.
  std::span<const ObjectSpec::Choice> choices(uint32_t label) const {
    const size_t names = spec.properties.size();
    return label < names ? spec[spec.properties[label].choices] : other_choices(label - names);
  }
  std::span<const ObjectSpec::Choice> other_choices(size_t one) const {
    return spec[spec.others[possible_others[one]].choices];
  }

  /// Adds the properties that must be present because of those in a set.
  void add_needed(std::vector<uint64_t>& names) const;

  /// The properties that must be present in the end where those in `seen` are.
  std::vector<uint64_t> needed(const std::vector<uint64_t>& seen) const;

  /// The first label with the same values.
  uint32_t alike(uint32_t label);

  bool is_name(const std::string& key) const;

  /// True if a token may hold the whole key. Outlines of registers tell whether such keys may come.
  bool is_outlined(const std::string& key) const { return whole_keys->contains(key); }

  /// True if every property that must be present where `name` is, itself included, passes.
  template <class Pass>
  bool needs_only(uint32_t name, const Pass& pass) const {
    if (closure.empty()) return pass(name);
    for (size_t word = 0; word < closure[name].size(); ++word) {
      for (uint64_t left = closure[name][word]; left; left &= left - 1) {
        if (!pass(static_cast<uint32_t>(64 * word) + static_cast<uint32_t>(std::countr_zero(left)))) return false;
      }
    }
    return true;
  }

  ObjectSpec spec;
  bool is_plain = false;  ///< a member changes what may follow only by its number, its key and being required
  std::vector<uint32_t> possible_others;       ///< indices into spec.others, numbered as the key automaton's classes
  std::vector<bool> possible;                  ///< by property: it and all it requires have values
  std::vector<uint64_t> required;              ///< the properties that every object has
  std::vector<std::vector<uint64_t>> closure;  ///< by property: the properties required where it is present, including
                                               ///< itself; empty without dependents
  std::vector<uint32_t> place;                 ///< by property: its rank in byte order
  std::vector<uint64_t> outlined_names;        ///< by place
  std::vector<uint32_t> outlined_words;        ///< indices of the words of `outlined_names` that are not 0
  std::shared_ptr<const std::unordered_set<std::string>> whole_keys;
  ByteSet name_bytes;  ///< all bytes of the names
  std::unique_ptr<KeyAutomaton> keys;
  KeySpellings spellings;
  std::vector<std::string> wanted_keys;  ///< sorted: other keys that shortest completions use; see ObjectCost

 private:
  void find_closure();
  void find_alike();

  const ParseTable* grammar_ = nullptr;
  std::vector<uint32_t> alike_;  // by label; empty until it is asked for
};
}  // namespace constrain::json
