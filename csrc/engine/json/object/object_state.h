// The register of an object frame: members so far, and which may still come.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/json/object/object_shape.h"

namespace constrain::json {

/// The register, unpacked.
struct ObjectMembers {
  uint64_t count = 0;   ///< number of members so far
  uint64_t next = 0;    ///< first property that may still come, if they come in order
  uint64_t others = 0;  ///< number of other keys so far
  Reg used = 0;         ///< list of the other keys so far: (rest, key)
  Reg key = 0;          ///< the key being written, as a list: (rest, byte)
  uint64_t met = 0;     ///< duties fulfilled
  std::vector<uint64_t> seen;
  std::vector<std::string> planned;  ///< keys that count as used while lengths are computed; not in the register
};

/// Requirements and possibilities for the rest of the object.
struct ObjectOutlook {
  std::vector<uint64_t> needed;         ///< properties that must be present in the end
  uint64_t missing = 0;                 ///< how many of these were not yet seen
  uint64_t first_missing = UINT64_MAX;  ///< the first of them
  uint64_t others = 0;                  ///< other keys that may still come, saturating at KeyAutomaton::kManyWords
};

/// Reads and makes the registers of object frames, and answers which members may still come.
class ObjectState {
 public:
  using Members = ObjectMembers;
  using Outlook = ObjectOutlook;

  /// Registers are blocks of words, of which the first says the kind:
  ///  - `kResolved`: the members so far, with all that follows from them: sets of names (seen; open, in the order of
  ///    their bytes) and of classes of other keys (open). 0 stands for the block of an object without members.
  ///  - `kSpelling`: resolved members, and the key that is being written, if others than names are possible.
  ///  - `kBegun`: resolved members, and one more, whose consequences are not computed yet.
  enum Kind : uint64_t { kResolved, kSpelling, kBegun };
  enum ResolvedWord : size_t { kCount = 1, kNext, kOthers, kUsed, kMet, kMissing, kOutlined, kFlags, kSets };
  enum SpellingWord : size_t { kBase = 1, kKey };
  enum BegunWord : size_t { kLabel = 2, kNewUsed, kNewMet };
  enum Flag : uint64_t {
    kMayClose = 1,
    kMayGoOn = 2,
    kAhead = 4,          ///< resolved within the token under test
    kOthersSuffice = 8,  ///< see `others_suffice`
    kUsedAnyNew = 16,    ///< some used key stands for any new one
    kSteady = 32,        ///< one more other key changes nothing but its number, and whether the object may close
    kMayCloseNext = 64,  ///< the object may close after one more other key
    kImplied = 128,      ///< `kAhead`, but implied by the flags before
    kEnding = 256,       ///< made by `ending`
  };

  /// `rule` is the owner of the frames.
  ObjectState(const ObjectShape& shape, const Rule& rule) : shape_(shape), rule_(rule) {}

  /// Computes the register of an object without members. Called once the shape is prepared.
  void prepare();

  // ---- Registers.

  Members unpack(Reg reg) const;
  /// Members without the sets of a resolved block.
  static Members counts(std::span<const uint64_t> resolved);
  /// Computes the resolved block of some members, and that of a `kBegun` block.
  std::vector<uint64_t> resolve(const Members& members) const;
  std::vector<uint64_t> resolve_begun(std::span<const uint64_t> begun) const;
  /// Resolved block of a register that has one.
  std::span<const uint64_t> members_of(Reg reg) const;
  /// Converts any register to one with a resolved block.
  Reg resolved(Reg reg, Registers& registers) const;
  /// The register of an object with all members but those that are missing, if only these are needed; `one` more is.
  Reg ending(Reg reg, bool one, Registers& registers) const;
  /// The text of the key being written.
  static Reg key_text(Reg reg) {
    return reg && Registers::words(reg)[0] == kSpelling ? Registers::words(reg)[kKey] : 0;
  }
  /// Words of the names seen, as indices of properties.
  std::span<const uint64_t> seen_names(std::span<const uint64_t> resolved) const {
    return resolved.subspan(kSets, shape_.names_words());
  }
  /// Words of the open names, in byte order, and of the open classes.
  std::span<const uint64_t> open_names(std::span<const uint64_t> resolved) const {
    return resolved.subspan(kSets + shape_.names_words());
  }
  std::span<const uint64_t> open_classes(std::span<const uint64_t> resolved) const {
    return resolved.subspan(kSets + 2 * shape_.names_words());
  }
  /// Records that a guard looked at more than the outline of the frame.
  void consult(Registers& registers) const { registers.consult(&rule_); }

  // ---- Which members may come after some.

  Outlook outlook(const Members& members) const;
  bool may_close(const Members& members, uint64_t missing) const;
  bool may_be_name(const Members& members, const Outlook& outlook, uint32_t name) const;
  bool may_be_other(const Members& members, const Outlook& outlook, uint32_t one) const;
  /// `latest` is the label of the last member if the list of used keys lacks it.
  bool duties_can_be_met(const Members& members, std::optional<uint32_t> latest = {}) const;
  Members with_name(const Members& members, uint32_t name) const;
  Members with_other(const Members& members) const;
  /// True if no member is needed after the next one except those that are missing now.
  bool needs_no_other(const Members& members, const Outlook& outlook) const;
  /// True if no member is needed after the next one except those that are missing now, and those that it requires.
  bool needs_dependents_only(const Members& members, const Outlook& outlook) const;
  /// True if after one more member that is no property only the missing properties are needed.
  bool others_suffice(const Members& members, uint64_t missing) const;

  // ---- Which keys may come, given a resolved block.

  /// True if the key may become an open one. `registers` records what was consulted.
  bool viable(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling, Registers* registers) const;
  /// True if some endless class of keys continues the key.
  bool is_endless(std::span<const uint64_t> resolved, const KeySpelling& spelling) const;
  bool name_viable(std::span<const uint64_t> resolved, State content) const;
  /// True if some used key stands for any new one.
  static bool used_any_new(Reg used);
  /// True if such a key may be reached from the one under way whatever is typed, apart from used and wanted keys.
  bool may_be_any_new(std::span<const uint64_t> resolved, const KeySpelling& spelling) const;
  /// True if only the length of the key under way matters for how the object ends: it is neither a name, nor used, nor
  /// wanted, and cannot become one of these.
  bool is_any_new(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling) const;
  /// True if the key may become an open name or a wanted key. Only these are known to differ from a key that stands for
  /// any new one.
  bool is_needed(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling) const;
  static bool is_used(Reg used, std::string_view key);
  static uint64_t used_with_prefix(Reg used, Reg prefix);

 private:
  uint64_t outlined_hash(Reg text) const;
  bool add_member(std::vector<uint64_t>& resolved, uint64_t label, Reg used) const;
  uint64_t flags(std::span<const uint64_t> resolved) const;
  uint64_t other_room(uint64_t others) const;
  uint64_t available_from(const Members& members, uint64_t from) const;
  uint64_t class_room(Reg used, uint32_t key_class) const;
  bool some_choice_fits(const Members& after, uint32_t label) const;
  bool other_viable(std::span<const uint64_t> resolved, Reg text, const KeySpelling& spelling, size_t after) const;
  bool is_open(std::span<const uint64_t> resolved, uint32_t key_class) const;

  const ObjectShape& shape_;
  const Rule& rule_;
  std::vector<uint64_t> first_;  // a resolved block without members, after its size
};

}  // namespace constrain::json
