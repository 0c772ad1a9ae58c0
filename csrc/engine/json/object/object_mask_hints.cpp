#include "engine/json/object/object_mask_hints.h"

#include <algorithm>
#include <array>
#include <utility>

namespace constrain::json {

namespace {

/// Bytes that cannot leave the class: those of its characters, and control characters, which keys hold escaped only.
ByteSet bytes_within(const CharacterClass& characters) {
  ByteSet within = characters.ascii;
  within.add(0, 0x1F);
  if (characters.beyond_ascii && characters.excluded.empty()) within.add(0x80, 0xFF);
  return within;
}

/// Bytes of keys that need no escape.
const ByteSet kPlainBytes = [] {
  ByteSet bytes = ByteSet::range(0x20, 0xFF), others;
  others.add('"'), others.add('\\');
  return bytes & ~others;
}();

/// Appends the words of a set that are not 0, and which these are: most objects have few of many properties.
void append_sparse(std::span<const uint64_t> set, std::vector<uint64_t>& out) {
  for (size_t first = 0; first < set.size(); first += 64) {
    const size_t filled = out.size();
    out.push_back(0);
    for (size_t word = first; word < std::min(first + 64, set.size()); ++word) {
      if (set[word]) out[filled] |= uint64_t{1} << (word - first), out.push_back(set[word]);
    }
  }
}

}  // namespace

WildcardRegion ObjectMaskHints::wildcard_region(Local state, Reg reg) {
  const ObjectPosition at = ObjectPosition::of(state);
  if (at.phase != ObjectPosition::key || shape_.spellings[at.operand].escape != kPlain) return {};
  const auto words = state_.members_of(reg);
  const State content = shape_.spellings[at.operand].content;
  const auto open = state_.open_classes(words);
  WildcardRegion best;
  size_t classes = 0;
  for (const uint32_t one : shape_.keys->state(content).classes) {
    if (!(open[one / 64] >> (one % 64) & 1)) continue;
    ++classes;
    const WildcardRegion& text = texts(one).from(shape_.keys->class_state(content, one));
    const auto worth = [](const WildcardRegion& a) {
      return std::pair(std::min(a.max_length, kWildcardHorizon), a.characters.count());
    };
    if (worth(text) > worth(best)) best = text;
  }
  best.exact = false;
  // Other classes may allow any byte, and names their own bytes.
  if (classes > 1) best.leaving = ByteSet::all();
  best.leaving.add(shape_.name_bytes);
  best.leaving.add('"');
  best.leaving.add('\\');
  best.leaving = best.leaving & ~bytes_within(best.characters);
  return best;
}

bool ObjectMaskHints::skip_wildcard(Local state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) {
  const ObjectPosition at = ObjectPosition::of(state);
  const KeySpelling& spelling = shape_.spellings[at.operand];
  if (at.phase != ObjectPosition::key || spelling.escape != kPlain) return false;
  const auto& key = shape_.keys->state(spelling.content);
  if (key.low != key.high || key.classes.size() != 1 || key.other_words < KeyAutomaton::kManyWords) return false;
  const uint32_t one = key.classes.front();
  if (!texts(one).is_loop(shape_.keys->class_state(spelling.content, one))) return false;
  const Reg members = state_.resolved(reg, registers);
  const auto words = Registers::words(members);
  if (words[ObjectState::kFlags] & ObjectState::kUsedAnyNew) return false;
  Reg text = ObjectState::key_text(reg);
  const bool by_end = registers.only_endings && registers.nesting == 0;
  if (by_end && !state_.may_be_any_new(words, spelling)) return false;
  if (words[ObjectState::kUsed]) state_.consult(registers);
  const CharacterClass& within = texts(one).from(shape_.keys->class_state(spelling.content, one)).characters;
  if (!KeyText::is_any_new(text)) {
    add_exceptions(words[ObjectState::kUsed], text, within, exceptions);
    if (by_end) add_wanted(KeyText::string(text), exceptions);
  }
  if (by_end) text = 0;
  reg = registers.make(
      std::array<uint64_t, 3>{ObjectState::kSpelling, members, KeyText::append(text, kAnyNew, registers)});
  return true;
}

/// Appends the rests of the used keys that the key under way may still repeat, up to the byte that leaves the class.
void ObjectMaskHints::add_exceptions(Reg used, Reg text, const CharacterClass& within,
                                     std::vector<std::string>& exceptions) const {
  const auto leaves = [&](uint8_t byte) { return byte < 0x80 ? !within.ascii.has(byte) : !within.beyond_ascii; };
  for (; used; used = UsedKeys::rest(used)) {
    if (!KeyText::starts_with(UsedKeys::text(used), text)) continue;
    const std::string rest = KeyText::string(UsedKeys::text(used)).substr(KeyText::length(text));
    const auto end = static_cast<size_t>(std::ranges::find_if(rest, leaves) - rest.begin());
    exceptions.push_back(rest.substr(0, end) + leaving_byte(rest, end));
  }
}

/// Appends the rests of the keys that shortest completions may need.
void ObjectMaskHints::add_wanted(const std::string& text, std::vector<std::string>& exceptions) const {
  for (auto at = std::ranges::lower_bound(shape_.wanted_keys, text);
       at != shape_.wanted_keys.end() && at->starts_with(text); ++at) {
    exceptions.push_back(at->substr(text.size()) + '"');
  }
}

std::optional<OpenWords> ObjectMaskHints::open_words(Local state, Reg reg) const {
  const ObjectPosition at = ObjectPosition::of(state);
  if (at.phase != ObjectPosition::key || shape_.spellings[at.operand].escape != kPlain) return {};
  const auto& key = shape_.keys->state(shape_.spellings[at.operand].content);
  const auto words = state_.members_of(reg);
  if (!key.classes.empty() || words[ObjectState::kFlags] & ObjectState::kUsedAnyNew) return {};
  return OpenWords{shape_.keys->words(), state_.open_names(words), key.low, key.high, key.length, kPlainBytes};
}

bool ObjectMaskHints::same_register(Reg one, Reg other) const {
  const auto same = [](std::span<const uint64_t> a, std::span<const uint64_t> b) { return a.data() == b.data(); };
  return same(state_.members_of(one), state_.members_of(other)) &&
         KeyText::equal(ObjectState::key_text(one), ObjectState::key_text(other));
}

bool ObjectMaskHints::outline(Local state, Reg reg, std::vector<uint64_t>& out) const {
  if (shape_.spec.duties) return false;
  const bool begun = reg && Registers::words(reg)[0] == ObjectState::kBegun;
  const auto made = begun ? state_.resolve_begun(Registers::words(reg)) : std::vector<uint64_t>();
  const std::span<const uint64_t> words = begun ? std::span(made) : state_.members_of(reg);
  out.push_back(words[ObjectState::kFlags] | (words[ObjectState::kUsed] ? uint64_t{1} << 63 : 0));
  const auto open = state_.open_classes(words);
  out.insert(out.end(), open.begin(), open.end());
  out.push_back(words[ObjectState::kOutlined]);
  const auto names = state_.open_names(words);
  for (const uint32_t word : shape_.outlined_words) out.push_back(shape_.outlined_names[word] & names[word]);
  append_key(state, words[ObjectState::kUsed], reg, out);
  return true;
}

bool ObjectMaskHints::describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const {
  // The sets of most registers need no copy.
  const bool begun = reg && Registers::words(reg)[0] == ObjectState::kBegun;
  const auto members = begun ? state_.unpack(reg) : ObjectState::counts(state_.members_of(reg));
  append_sparse(begun ? members.seen : state_.seen_names(state_.members_of(reg)), out);
  out.push_back(shape_.spec.max == kInfinite ? horizon + 1 : std::min(shape_.spec.max - members.count, horizon + 1));
  out.push_back(shape_.spec.min > members.count ? std::min(shape_.spec.min - members.count, horizon + 1) : 0);
  if (shape_.spec.in_order) out.push_back(members.next);
  if (shape_.spec.duties) out.push_back(members.met);
  if (shape_.possible_others.empty()) return true;
  const bool many = shape_.keys->state(shape_.keys->start()).other_words >= KeyAutomaton::kManyWords;
  out.push_back(many ? std::min(ObjectShape::kMaxOtherKeys - members.others, horizon + 1) : members.others);
  out.push_back(UsedKeys::hash(members.used));
  append_key(state, members.used, reg, out);
  return true;
}

/// Describes a key under way, which matters only if it may turn out to repeat a used one.
void ObjectMaskHints::append_key(Local state, Reg used, Reg reg, std::vector<uint64_t>& out) {
  const Reg key = ObjectState::key_text(reg);
  if (ObjectPosition::of(state).phase != ObjectPosition::key || !ObjectState::used_with_prefix(used, key)) return;
  out.push_back(KeyText::length(key));
  out.push_back(KeyText::hash(key));
}

}  // namespace constrain::json
