#include "engine/automata/formats/host_name.h"

#include <array>
#include <bit>
#include <bitset>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/automata/lazy.h"
#include "engine/base/interner.h"

namespace constrain {

namespace {

/// The characters of U-labels and the separators beyond ASCII, by the bytes of UTF-8.
class CharacterTrie {
 public:
  static constexpr uint8_t kNone = 0, kSeparator = 0xFF;  // others are kinds of characters, from 1 on
  static constexpr uint32_t kContinuations = 64;
  using Block = std::array<uint16_t, kContinuations>;
  using Kinds = std::bitset<256>;

  explicit CharacterTrie(bool letters) {
    std::vector<uint8_t> kinds(kEnd, kNone);
    if (letters) {
      for (const IdnaRun& run : idna_runs()) {
        for (char32_t scalar = run.first; scalar <= run.last && scalar < kEnd; ++scalar) kinds[scalar] = run.kind + 1;
      }
    }
    for (const char32_t separator : U"\u3002\uFF0E\uFF61") {
      if (separator) kinds[separator] = kSeparator;
    }
    std::vector<uint16_t> level(kinds.begin(), kinds.end());
    for (uint32_t depth = 1, first = 0xC0; depth <= 3; ++depth, first = depth == 2 ? 0xE0 : 0xF0) {
      level = grouped(level, depth);
      const size_t begin = depth == 1 ? 2 : 0;  // shorter forms are no UTF-8
      const size_t leads = depth == 1 ? 0x20 : depth == 2 ? 0x10 : 1;
      for (size_t i = begin; i < leads; ++i) {
        const uint16_t block = depth == 1 ? level[i] : without_short_forms(level[i], i, depth);
        if (block) leads_.push_back({static_cast<uint8_t>(first + i), block, static_cast<uint8_t>(depth)});
      }
    }
  }

  struct Lead {
    uint8_t byte;
    uint16_t block;
    uint8_t depth;  ///< bytes to come
  };
  const std::vector<Lead>& leads() const { return leads_; }
  const Block& block(uint32_t id) const { return blocks_[id]; }
  const Kinds& kinds(uint32_t id) const { return kinds_[id]; }

 private:
  static constexpr char32_t kEnd = 0x40000;

  /// Blocks of the entries of a level; 0 where all are 0.
  std::vector<uint16_t> grouped(const std::vector<uint16_t>& level, uint32_t depth) {
    std::vector<uint16_t> out;
    for (size_t at = 0; at < level.size(); at += kContinuations) {
      Block block{};
      std::copy_n(level.begin() + static_cast<ptrdiff_t>(at), std::min<size_t>(kContinuations, level.size() - at),
                  block.begin());
      out.push_back(intern(block, depth));
    }
    return out;
  }

  uint16_t intern(const Block& block, uint32_t depth) {
    if (block == Block{}) return 0;
    const auto [it, added] = ids_.try_emplace({depth, block}, static_cast<uint16_t>(blocks_.size()));
    if (!added) return it->second;
    blocks_.push_back(block);
    kinds_.emplace_back();
    for (const uint16_t entry : block) {
      if (depth > 1) kinds_.back() |= kinds_[entry];
      if (depth == 1) kinds_.back().set(entry);
    }
    kinds_.back().reset(kNone);
    return it->second;
  }

  /// The block after the first byte of its length leaves out characters that take fewer bytes.
  uint16_t without_short_forms(uint16_t id, size_t lead, uint32_t depth) {
    if (lead > 0) return id;
    Block block = blocks_[id];
    std::fill_n(block.begin(), depth == 2 ? 0x20 : 0x10, 0);
    return intern(block, depth);
  }

  std::vector<Block> blocks_{Block{}};
  std::vector<Kinds> kinds_{Kinds{}};  // in the characters of each block
  std::map<std::pair<uint32_t, Block>, uint16_t> ids_;
  std::vector<Lead> leads_;
};

class HostNames : public PrunedAutomaton {
 public:
  HostNames(bool international, bool encoded)
      : PrunedAutomaton(kSearchBudget), international_(international), encoded_(encoded) {}

  bool accepting(State state) override {
    const auto at = place(state);
    if (!at) return false;
    return encoded_ ? at->phase == kEnd : may_end(*at);
  }

 private:
  enum Phase : uint8_t { kOpening, kName, kEncoded, kEnd };

  /// Kinds of the labels before: all `left`, some `plain`, or some `right`.
  enum Names : uint8_t { kAllLeft, kSomePlain, kSomeRight };

  struct Place {
    uint8_t phase = kName;
    uint8_t names = kAllLeft;
    uint8_t used = 0;    // octets before the label, if they are counted
    uint8_t begun = 0;   // an A-label has characters after its mark
    uint8_t hyphen = 0;  // ... the last of which is a hyphen
    uint8_t unused[3] = {};
    HostLabel label;
  };
  using PlaceWords = std::array<uint32_t, sizeof(Place) / sizeof(uint32_t)>;

  State name(const Place& at) { return states_.intern(std::bit_cast<PlaceWords>(at)); }

  /// The place of a state; nullopt within a character.
  std::optional<Place> place(State state) const {
    const std::span<const uint32_t> words = states_[state];
    if (words.size() != std::tuple_size_v<PlaceWords>) return std::nullopt;
    PlaceWords copy;
    std::ranges::copy(words, copy.begin());
    return std::bit_cast<Place>(copy);
  }

  State raw_start() override { return name({.phase = encoded_ ? kOpening : kName}); }

  Verdict glance(State state) override {
    const auto at = place(state);
    const bool live = at ? is_live(*at) : is_live_within_character(states_[state]);
    return live ? Verdict::live : Verdict::dead;
  }

  bool is_live(const Place& at) const { return at.phase != kName || may_end(at) || may_end_after_another(at); }

  bool is_live_within_character(std::span<const uint32_t> key) {
    const auto& [from, block, with_letters] = std::tuple(key[0], key[1], key[3]);
    return ((with_letters ? letters() : separators()).kinds(block) & after_kinds(from).live).any();
  }

  void fill_row(State state, Transitions& row) override {
    const auto at = place(state);
    if (!at) return fill_within_character(state, row);
    if (at->phase == kOpening) row.set('"', name({}));
    if (at->phase == kEncoded) fill_encoded(*at, row);
    if (at->phase == kName) fill_name(state, *at, row);
    if (encoded_ && at->phase == kName && at->label.length() == 0) row.set(encoded_host_name::kLabelStart, state);
  }

  void fill_name(State state, const Place& at, Transitions& row) {
    fill_ascii(at, row);
    row.set('.', after_dot(at));
    if (encoded_ && may_end(at)) row.set('"', name({.phase = kEnd}));
    if (!international_) return;
    const CharacterTrie& trie = trie_after(at);
    for (const auto& [byte, block, depth] : trie.leads()) {
      row.set(byte, states_.intern(std::array<uint32_t, 4>{state, block, depth, &trie == &letters()}));
    }
  }

  /// Most letters lead to one state; a few matter to contexts, or to the mark of an A-label.
  void fill_ascii(const Place& at, Transitions& row) {
    for (const auto& [first, last] : {std::pair('0', '9'), {'A', 'Z'}, {'a', 'z'}}) {
      row.set(first, last, after_ascii(at, static_cast<uint8_t>(first)));
    }
    for (const uint8_t byte : {'-', 'l', 'n', 'x'}) row.set(byte, after_ascii(at, byte));
  }

  void fill_within_character(State state, Transitions& row) {
    const std::array<uint32_t, 4> key{states_[state][0], states_[state][1], states_[state][2], states_[state][3]};
    const auto [from, block, depth, with_letters] = key;
    if (encoded_ && depth == 1) row.set(encoded_host_name::kLastByte, state);
    const CharacterTrie::Block& next = (with_letters ? letters() : separators()).block(block);
    for (uint32_t i = 0; i < CharacterTrie::kContinuations; ++i) {
      if (next[i] == 0) continue;
      row.set(0x80 + static_cast<int>(i),
              depth == 1 ? after_kinds(from).states[next[i]]
                         : states_.intern(std::array<uint32_t, 4>{from, next[i], depth - 1, with_letters}));
    }
  }

  void fill_encoded(const Place& at, Transitions& row) {
    using namespace encoded_host_name;
    for (uint8_t byte = '-'; byte <= 'z'; ++byte) row.set(byte, after_encoded(at, byte));
    row.set(kFirstMark + at.names, name(at));
    if (!at.begun || at.hyphen) return;
    row.set(kQuote, name({.phase = kEnd}));
    for (const LabelKind kind : {LabelKind::right, LabelKind::left, LabelKind::plain}) {
      row.set(kFirstDot + static_cast<uint8_t>(kind), after_label(at, kind));
    }
  }

  State after_ascii(Place at, uint8_t byte) {
    if (byte == '-' && encoded_ && at.label.may_be_encoded()) {
      return name({.phase = kEncoded, .names = at.names});
    }
    return at.label.read(byte) ? named_if_fits(at) : kDead;
  }

  State after_encoded(Place at, uint8_t byte) {
    const bool follows = byte == '-' || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z');
    if (!follows) return kDead;
    at.begun = 1;
    at.hyphen = byte == '-';
    return name(at);
  }

  /// The states after all kinds of characters, and which of these are live.
  struct AfterKinds {
    std::array<State, 256> states;
    CharacterTrie::Kinds live;
  };

  const AfterKinds& after_kinds(State from) {
    const auto [it, fresh] = after_kinds_.try_emplace(from);
    if (!fresh) return it->second;
    memory_.add(sizeof(AfterKinds));
    AfterKinds& after = it->second;
    after.states.fill(kDead);
    const Place at = *place(from);
    after.states[CharacterTrie::kSeparator] = after_dot(at);
    for (size_t kind = 0; kind < idna_kinds().size(); ++kind) {
      Place next = at;
      if (next.label.read(idna_kinds()[kind])) after.states[kind + 1] = named_if_fits(next);
    }
    for (size_t kind = 0; kind < after.states.size(); ++kind) {
      after.live[kind] = after.states[kind] != kDead && is_live(*place(after.states[kind]));
    }
    return after;
  }

  bool is_within_limits(const Place& at) const {
    if (encoded_) return true;
    const uint32_t most = at.label.international() ? kMaxInternational : kMaxLabel;
    return at.label.length() <= most && at.used + octets(at.label) <= kMaxName;
  }

  State named_if_fits(Place at) {
    if (!is_within_limits(at)) return kDead;
    if (!may_become_international(at.label)) at.label.forget_context();
    if (!international_) at.label.forget_capitals();
    if (!international_ && !encoded_) at.label.forget_kind();
    if (encoded_) at.label.forget_length();
    return name(at);
  }

  State after_dot(const Place& at) { return at.label.complete() ? after_label(at, at.label.kind()) : kDead; }

  State after_label(const Place& at, LabelKind kind) {
    const uint32_t used = encoded_ ? 0 : at.used + octets(at.label) + 1;
    if (!fits(at, kind) || used + 1 > kMaxName) return kDead;
    Place next{.names = at.names, .used = static_cast<uint8_t>(used)};
    if (international_ || encoded_) {
      if (kind == LabelKind::right) next.names = kSomeRight;
      if (kind == LabelKind::plain) next.names = kSomePlain;
    }
    return name(next);
  }

  bool fits(const Place& at, LabelKind kind) const {
    if (!international_ && !encoded_) return true;
    return encoded_host_name::kMarked[at.names] & bit(kind);
  }

  bool may_end(const Place& at) const { return at.phase == kName && at.label.complete() && fits(at, at.label.kind()); }

  /// True if the name may end after one of the characters that contexts need.
  bool may_end_after_another(const Place& at) const {
    static constexpr char32_t kUseful[] = {'a', 'l', 0x3B1, 0x5D0, 0x628, 0x1820, 0x3042};
    for (const char32_t scalar : kUseful) {
      if (scalar >= 0x80 && !international_) break;
      Place next = at;
      if (next.label.read(scalar) && is_within_limits(next) && may_end(next)) return true;
    }
    return false;
  }

  bool may_become_international(const HostLabel& label) const {
    return international_ && !label.has_capitals() && (encoded_ || label.length() < kMaxInternational);
  }

  const CharacterTrie& trie_after(const Place& at) const {
    const bool allowed = at.used + kMaxLabel <= kMaxName;
    return allowed && may_become_international(at.label) ? letters() : separators();
  }

  static uint32_t octets(const HostLabel& label) { return label.international() ? kMaxLabel : label.length(); }

  static const CharacterTrie& letters() {
    static const CharacterTrie kTrie(true);
    return kTrie;
  }
  static const CharacterTrie& separators() {
    static const CharacterTrie kTrie(false);
    return kTrie;
  }

  bool international_, encoded_;
  SequenceInterner states_;
  std::unordered_map<State, AfterKinds> after_kinds_;
};

}  // namespace

AutomatonPtr host_names(bool international) { return std::make_shared<HostNames>(international, false); }

AutomatonPtr encoded_host_names(bool international) { return std::make_shared<HostNames>(international, true); }

}  // namespace constrain
