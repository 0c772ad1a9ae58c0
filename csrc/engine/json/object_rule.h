// JSON objects.
#pragma once

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "engine/automata/wildcard_region.h"
#include "engine/automata/word_bounds.h"
#include "engine/grammar/rule.h"
#include "engine/json/cheapest_words.h"
#include "engine/json/key_automaton.h"
#include "engine/json/object_keys.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

/// Which members an object has.
struct ObjectSpec {
  /// A value that a member may have, and the duties (by bit) that it fulfils.
  struct Choice {
    RuleId value;
    uint32_t duties = 0;
  };
  struct Property {
    std::string name;
    std::vector<Choice> choices;
    bool required = false;
  };
  struct Others {
    AutomatonPtr keys;  ///< disjoint from each other; free of the names where finite
    std::vector<Choice> choices;
  };
  std::vector<Property> properties;  ///< in the order of the schema
  std::vector<Others> others;
  std::vector<std::pair<uint32_t, uint32_t>> dependents;  ///< where the first property is present, so is the second
  uint32_t duties = 0;                                    ///< bits that the members together must fulfil
  uint64_t min = 0, max = kInfinite;
  bool in_order = false;  ///< properties come in their order, and other keys after them

  static constexpr size_t kMaxDuties = 6;
};

/// An object. Members come in any order without their permutations being spelled out: the register holds which names
/// were used, and guards ask it. No key occurs twice.
class ObjectRule final : public Rule {
 public:
  ObjectRule(ObjectSpec spec, Whitespace whitespace);

  /// Keys beyond the known names that one object may have.
  static constexpr uint64_t kMaxOtherKeys = 4096;

  /// So many other keys may be used before those that shortest ends ask for are no longer told in advance.
  static constexpr uint64_t kWantedBesideUsed = 16;

  Local start() override { return encode(Phase::start); }
  void prepare(const ParseTable& grammar, const Lengths& lengths) override;
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool final(Local state, const Lengths&) override { return state == encode(Phase::end); }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  FreeText free_text(Local state, Reg reg) override;
  bool pass_text(Local state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  bool outline(Local state, Reg reg, std::vector<uint64_t>& out) const override;
  bool uses_depth() const override { return whitespace_.indents(); }
  bool fits(Local from, Local to) const override {
    return static_cast<Phase>(from & 0xF) == Phase::key && static_cast<Phase>(to & 0xF) == Phase::key;
  }
  ByteSet likely(Local state, Reg reg) override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t variety(Local state, Reg reg, const ParseTable& grammar) override;
  uint64_t growth(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t most_remaining(RuleBounds& bounds) override;
  uint64_t most_to_differ(RuleBounds& bounds) override;
  std::vector<RuleId> callees() const override;

 private:
  enum class Phase : uint32_t { start, open, next, key, colon_before, colon, after, comma_before, closing, end };

  /// What a guard does; its operand is a spelling for the tests of keys.
  enum class Test : uint32_t {
    none,       ///< nothing
    close,      ///< the object may end
    member,     ///< another member may follow
    key,        ///< some permitted key is still spelled so
    key_raw,    ///< the same, after a byte of the key
    key_short,  ///< ... after the last byte of `\n` and its like
    key_low,    ///< ... after the last digit of `\u000x`
    key_high,   ///< ... of `\u001x`
    key_end,    ///< the key is permitted
    value,      ///< a value is chosen that fulfils the duties of the operand
    space,      ///< a line may be indented so far, operand: spaces, and whether within the brackets
    next_line,  ///< the same for a complete indentation, and a key may start
    last_line   ///< ... and the object may end
  };

  /// A key being spelled: its content so far and progress in an escape.
  struct Spelling {
    State content = 0;
    uint32_t escape = 0;
    std::vector<State> after;  ///< what the content may be when the escape is over

    std::span<const State> contents() const { return escape ? std::span(after) : std::span(&content, 1); }
  };

  /// The states after what keys hold only as escapes.
  using Escaped = std::array<State, 0x20 + kShortBytes.size()>;

  /// Registers are blocks of words, of which the first says the kind:
  ///  - `kSettled`: the members so far, with all that follows from them: sets of names (seen; open, in the order of
  ///    their bytes) and of classes of other keys (open). 0 stands for the block of an object without members.
  ///  - `kSpelling`: settled members, and the key that is being spelled, where others than names are possible.
  ///  - `kBegun`: settled members, and one more, of which nothing is worked out yet.
  enum Kind : uint64_t { kSettled, kSpelling, kBegun };
  enum SettledWord : size_t { kCount = 1, kNext, kOthers, kUsed, kMet, kFlags, kSets };
  enum SpellingWord : size_t { kBase = 1, kKey };
  enum BegunWord : size_t { kLabel = 2, kNewUsed, kNewMet };
  enum Flag : uint64_t {
    kMayClose = 1,
    kMayGoOn = 2,
    kAhead = 4,          ///< of members that were begun within the text that is being looked at
    kOthersSuffice = 8,  ///< see `others_suffice`
    kUsedAnyNew = 16,    ///< some key that was used stands for any new one
  };

  /// The register, unpacked.
  struct Members {
    uint64_t count = 0;   ///< members so far
    uint64_t next = 0;    ///< first property that may still come, where they come in order
    uint64_t others = 0;  ///< number of other keys so far
    Reg used = 0;         ///< list of the other keys so far: (rest, key)
    Reg key = 0;          ///< the key being spelled, as a list: (rest, byte)
    uint64_t met = 0;     ///< duties fulfilled
    std::vector<uint64_t> seen;
    std::vector<std::string> planned;  ///< keys that count as used while lengths are worked out; not in the register

    static size_t words(size_t names) { return (names + 63) / 64; }
  };

  /// A key that is no name, with what it takes to spell the rest of it and its value.
  struct OtherKey {
    uint64_t length;
    std::string key;
    auto operator<=>(const OtherKey&) const = default;
  };

  /// What the rest of the object must and may hold.
  struct Outlook {
    std::vector<uint64_t> needed;         ///< properties that must be there in the end
    uint64_t missing = 0;                 ///< of these, how many were not yet seen
    uint64_t first_missing = UINT64_MAX;  ///< the first of them
    uint64_t others = 0;                  ///< other keys that can still be had, saturating at KeyAutomaton::kManyWords
  };

  /// Who fulfils which duties, and what that costs beyond the members that are needed anyway.
  struct Plan {
    uint64_t cost = 0;
    std::map<uint32_t, uint32_t> properties;  ///< duties by property
    std::vector<uint64_t> others;             ///< lengths of other members
    std::vector<std::string> keys;            ///< and their keys
  };

  /// What a member takes beside its name and its value, a comma, white space, or an escape that is under way.
  static constexpr uint64_t kMemberBytes = 10;

  static Local encode(Phase phase, uint32_t run = 0, uint32_t value = 0) {
    return Local{value} << 32 | run << 4 | static_cast<uint32_t>(phase);
  }
  static Guard guard(Test test, uint32_t operand = 0) { return Guard{operand} << 4 | static_cast<uint32_t>(test); }
  Guard space(uint32_t run, bool inner) const;
  Guard line(Test test, Test otherwise, uint32_t run) const;

  void expand_key(uint32_t spelling, Expansion& out);
  uint32_t intern_spelling(State content, uint32_t escape);
  State with_same_escapes(State content);
  const std::vector<ObjectSpec::Choice>& choices(uint32_t label) const;

  size_t names_words() const { return Members::words(spec_.properties.size()); }
  size_t classes_words() const { return Members::words(possible_others_.size()); }
  Members unpack(Reg reg) const;
  std::vector<uint64_t> settle(const Members& members) const;
  std::span<const uint64_t> members_of(Reg reg) const;
  Reg settled(Reg reg, Registers& registers) const;
  bool spell(Test test, uint8_t byte, const Spelling& spelling, Reg& reg, Registers& registers) const;
  bool is_any_new(std::span<const uint64_t> settled, Reg text, const Spelling& spelling) const;
  static bool ends_anyhow(std::span<const uint64_t> settled, Registers& registers);
  bool is_needed(std::span<const uint64_t> settled, Reg text, const Spelling& spelling) const;
  bool end_key(uint32_t label, Reg& reg, Registers& registers) const;
  bool choose_value(uint64_t duties, Reg& reg, Registers& registers) const;
  static bool has(const std::vector<uint64_t>& set, uint64_t name) { return set[name / 64] >> (name % 64) & 1; }
  static void insert(std::vector<uint64_t>& set, uint64_t name) { set[name / 64] |= uint64_t{1} << (name % 64); }
  void close_under_dependents(std::vector<uint64_t>& names) const;

  Outlook outlook(const Members& members) const;
  bool may_close(const Members& members, const Outlook& outlook) const;
  bool duties_can_be_met(const Members& members) const;
  bool some_choice_fits(const Members& after, const std::vector<ObjectSpec::Choice>& choices) const;
  Members with_name(const Members& members, uint32_t name) const;
  Members with_other(const Members& members) const;
  bool may_be_name(const Members& members, const Outlook& outlook, uint32_t name) const;
  bool may_be_other(const Members& members, const Outlook& outlook, uint32_t one) const;
  bool viable(std::span<const uint64_t> settled, Reg text, const Spelling& spelling, Registers* registers) const;
  bool name_viable(std::span<const uint64_t> settled, State content) const;
  bool class_open(std::span<const uint64_t> settled, const KeyAutomaton::KeyState& key) const;
  bool other_viable(std::span<const uint64_t> settled, Reg text, State content) const;
  static bool is_used(Reg used, std::string_view key);
  bool is_name(const std::string& key) const;
  /// Every property that must be there where `name` is, itself included, passes.
  template <class Pass>
  bool needs_only(uint32_t name, const Pass& pass) const {
    for (size_t word = 0; word < closure_[name].size(); ++word) {
      for (uint64_t left = closure_[name][word]; left; left &= left - 1) {
        if (!pass(static_cast<uint32_t>(64 * word) + static_cast<uint32_t>(std::countr_zero(left)))) return false;
      }
    }
    return true;
  }
  /// How many properties can still come where only those from index `from` on are left.
  uint64_t available_from(const Members& members, uint64_t from) const;
  static uint64_t used_with_prefix(Reg used, Reg prefix);

  uint64_t member_length(uint32_t name, uint32_t typed, const Lengths& lengths, uint32_t duties = 0) const;
  std::vector<OtherKey> other_keys(const Members& members, const std::string& typed, const std::vector<State>& at,
                                   size_t count, uint32_t duties, const Lengths& lengths);
  uint64_t rest_length(const Members& members, const Lengths& lengths);
  void plan_duties(uint32_t open, const Members& members, const std::vector<uint64_t>& needed, const Lengths& lengths,
                   const Plan& so_far, uint64_t& best);
  uint64_t planned_length(const Members& members, std::vector<uint64_t> needed, const Lengths& lengths,
                          const Plan& plan);
  uint64_t value_length(const Members& members, uint32_t label, const Lengths& lengths);
  uint64_t key_length(const Members& members, uint32_t spelling, const Lengths& lengths);
  struct Ahead {
    State content;
    std::string typed;
    uint64_t escape;  ///< bytes that the escape takes still
  };
  std::vector<Ahead> contents_ahead(const Spelling& at, const std::string& typed);
  bool needs_no_other(const Members& members, const Outlook& outlook) const;
  bool others_suffice(const Members& members, const Outlook& outlook) const;
  void find_wanted_keys(const Lengths& lengths);
  template <class Offer>
  void offer_keys(uint64_t spelling, const Members& members, const Outlook& outlook, const Offer& offer);
  uint64_t remaining_after_run(Local state, Reg reg, const Lengths& lengths);
  uint64_t missing_length(uint32_t name, const Lengths& lengths) const;
  uint64_t needed_length(const Members& members, const Outlook& outlook, const Lengths& lengths) const;
  const std::optional<WordBounds>& key_bounds(uint32_t others);

  ObjectSpec spec_;
  WhitespaceRun whitespace_;
  std::vector<uint32_t> possible_others_;       // of spec_.others, in the numbering of the key automaton's classes
  std::vector<bool> possible_;                  // of spec_.properties: it, and all that depends on it, has values
  std::vector<std::vector<uint64_t>> closure_;  // of spec_.properties: what must be there where it is, itself included
  std::vector<CheapestWords> cheapest_;         // of spec_.others
  std::map<uint32_t, std::optional<WordBounds>> key_bounds_;  // of spec_.others
  std::vector<std::string> wanted_keys_;                      // sorted: see `find_wanted_keys`
  std::unique_ptr<KeyAutomaton> keys_;
  ByteSet name_bytes_;                 // all bytes of the names
  std::vector<FreeTextFinder> texts_;  // of the possible classes of other keys
  std::vector<uint32_t> place_;        // of spec_.properties: among the names in the order of their bytes
  std::vector<uint64_t> first_;        // a settled block without members, after its size
  StableVector<Spelling> spellings_;
  std::vector<std::array<uint32_t, kKeyEscapes>> spelling_ids_;  // by content and escape; one more, or 0 for none
  std::map<Escaped, State> escaping_;                            // contents by the states after what is escaped
};

}  // namespace constrain::json
