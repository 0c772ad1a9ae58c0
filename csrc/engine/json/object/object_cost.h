// Completion cost of an object: fewest bytes to its end.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/lru_cache.h"
#include "engine/json/object/object_position.h"
#include "engine/json/object/object_state.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

/// Computes Rule::remaining of object frames. Used under the grammar's lock.
class ObjectCost {
 public:
  using Members = ObjectMembers;
  using Outlook = ObjectOutlook;

  ObjectCost(const ObjectShape& shape, const ObjectState& state, const WhitespaceRun& whitespace);

  /// Forgets what was found. Called whenever the shape is prepared.
  void prepare() { keys_.emplace(kMaxKeyBytes); }

  uint64_t remaining(Local state, Reg reg, const Lengths& lengths);

  /// Bytes of a name, its quotation mark and colon, and a shortest value that fulfils `duties`.
  uint64_t member_length(uint32_t name, const Lengths& lengths, uint32_t duties = 0) const;

  /// Bytes to the end of the object while a key is written.
  uint64_t key_length(const Members& members, uint32_t id, const Lengths& lengths);

  /// Bytes of the members that are missing, with their commas, and of the closing bracket.
  uint64_t needed_length(const Members& members, const Outlook& outlook, const Lengths& lengths) const;

  /// Lists, in order, the other keys among which those are that shortest completions need for the least count or for
  /// duties. Empty if that would be many.
  std::vector<std::string> find_wanted_keys(const Lengths& lengths);

 private:
  static constexpr size_t kMaxKeyBytes = size_t{32} << 10;

  /// A key that is no name, with the bytes for the rest of it and its value.
  struct OtherKey {
    uint64_t length;
    std::string key;
    auto operator<=>(const OtherKey&) const = default;
  };

  /// An assignment of duties to members, and its cost beyond the members that are needed anyway.
  struct Plan {
    uint64_t cost = 0;
    std::map<uint32_t, uint32_t> properties;  ///< duties by property
    std::vector<uint64_t> others;             ///< lengths of other members
    std::vector<std::string> keys;            ///< and their keys
  };

  /// A content that a key may have when its escape is over.
  struct Ahead {
    State content;
    std::string typed;
    uint64_t escape;  ///< bytes until then
  };

  std::vector<OtherKey> other_keys(const Members& members, const std::string& typed, const std::vector<State>& at,
                                   size_t count, uint32_t duties, const Lengths& lengths);
  std::vector<OtherKey> wanted_key(const Members& members, const std::string& typed, uint32_t others, State at);
  uint64_t measure_key(const Members& members, uint32_t id, const Lengths& lengths);
  uint64_t rest_length(const Members& members, const Lengths& lengths);
  uint64_t end_length(const Members& members, const Lengths& lengths);
  void plan_duties(uint32_t open, const Members& members, const std::vector<uint64_t>& needed, const Lengths& lengths,
                   const Plan& so_far, uint64_t& best);
  uint64_t planned_length(const Members& members, std::vector<uint64_t> needed, const Lengths& lengths,
                          const Plan& plan);
  uint64_t dependents_length(const Members& members, const Outlook& outlook, uint32_t name,
                             const Lengths& lengths) const;
  uint64_t value_length(const Members& members, uint32_t label, const Lengths& lengths);
  std::vector<Ahead> contents_ahead(const KeySpelling& at, const std::string& typed);
  uint64_t remaining_after_run(Local state, Reg reg, const Lengths& lengths);
  uint64_t missing_length(uint32_t name, const Lengths& lengths) const;

  const ObjectShape& shape_;
  const ObjectState& state_;
  const WhitespaceRun& whitespace_;
  std::vector<uint64_t> names_;             // lengths of the names of spec.properties
  std::optional<LruCache<uint64_t>> keys_;  // of `key_length`
  std::vector<uint64_t> key_;               // scratch
};

}  // namespace constrain::json
