#include "engine/json/distinct_items.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

#include "engine/base/errors.h"
#include "engine/json/object/object_rule.h"

namespace constrain::json {

namespace {

/// Most items that an array of different items may require.
constexpr uint64_t kMaxNeeded = 4096;

/// Largest number of values of an item that counts as scarce.
constexpr uint64_t kMaxScarce = 1024;

/// Rivals up to this number are compared at every byte.
constexpr uint64_t kFewRivals = 64;

/// Deepest nesting of arrays of different items within their items.
constexpr uint32_t kMaxNesting = 100;

/// Configurations of an item that a description lists.
constexpr size_t kMaxDescribed = 64;

/// Shortest member of an object, and texts of items in which no object has reached its limit of members.
constexpr uint64_t kMemberBytes = 4, kBoundedLength = kMemberBytes * ObjectShape::kMaxOtherKeys;

/// Characters of a wildcard region that take one byte; a lower bound.
constexpr uint64_t kPlainCharacters = 10;

/// Frames whose values are counted.
constexpr size_t kMaxFrames = 256;

/// Ends of items that are kept.
constexpr size_t kMaxEnds = 64;

/// Searches for ends of items that are kept, and the longest texts that they begin from.
constexpr size_t kMaxBegun = 2, kMaxKeptText = 64;

/// A hash of the texts of a set.
uint64_t hash_of(const TextSet& set) {
  uint64_t hash = 0;
  for (const Reg text : set.texts()) hash += std::hash<std::string_view>()(text_of(text)) * 0x9E3779B97F4A7C15ull;
  return hash;
}

/// Sets the depth of the registers while an item's configuration is stepped: its frames stand on those of the array.
class Inside {
 public:
  Inside(Registers& registers, uint64_t base) : registers_(registers), base_(registers.base) {
    if (registers.nesting >= kMaxNesting) {
      throw ResourceLimit("max_nesting", kMaxNesting, "of arrays of different items (uniqueItems) in one another");
    }
    registers.base = static_cast<uint32_t>(base);
    ++registers.nesting;
  }
  Inside(const Inside&) = delete;
  ~Inside() { registers_.base = base_, --registers_.nesting; }

 private:
  Registers& registers_;
  uint32_t base_;
};

}  // namespace

// ---- Required items.

void DistinctItems::prepare(const ParseTable& grammar, const Lengths& lengths) {
  grammar_ = &grammar;
  lengths_ = &lengths;
  values_.clear();
}

bool DistinctItems::refine() {
  uint64_t needed = spec_.min + (spec_.tallies.empty() ? 0 : spec_.prefix.size());
  for (const auto& tally : spec_.tallies) needed = add_lengths(needed, tally.min);
  if (spec_.min < 2 && spec_.tallies.empty()) return false;
  const auto lock = grammar_->lock();
  try {
    if (needed > kMaxNeeded)
      throw ResourceLimit("different_items", kMaxNeeded, "that an array (uniqueItems) must have");
    if (spec_.prefix.empty()) {
      limit_uses(needed);
    } else if (spec_.tallies.empty()) {
      find_scarce_places();
    } else {
      refuse_scarce_kinds(needed);
    }
  } catch (ResourceLimit& limit) {
    if (!limit.place) limit.place = *spec_.distinct;
    throw;
  }
  return true;
}

void DistinctItems::find_scarce_places() {
  for (uint64_t index = 0; index < spec_.min; ++index) {
    const Values* values = fewer(spec_.choices(index).front(), spec_.min);
    if (!values) continue;
    Scarce& place = scarce_.emplace_back(index);
    for (const auto& one : values->found) place.values.push_back(one.value);
    scarce_values_ += place.values.size();
    if (scarce_values_ > kMaxScarce) {
      throw ResourceLimit("scarce_values", kMaxScarce, "of the items of one array (uniqueItems, prefixItems)");
    }
  }
  possible_ = can_differ(0, TextSet(), "");
}

void DistinctItems::refuse_scarce_kinds(uint64_t needed) const {
  for (uint64_t index = 0; index <= spec_.prefix.size(); ++index) {
    const auto& choices = spec_.choices(index);
    if (std::any_of(choices.begin(), choices.end(), [&](auto& choice) { return fewer(choice, needed); })) {
      throw SchemaError(SchemaError::Kind::unsupported, *spec_.distinct, "uniqueItems",
                        "together with contains and prefixItems it is enforced only where items have many values");
    }
  }
}

const DistinctItems::Values* DistinctItems::fewer(const ArraySpec::Choice& choice, uint64_t count) const {
  if ((*lengths_)[choice.value] == kInfinite) return nullptr;
  const Values* values = values_of(choice.value, count);
  return values && values->found.size() < count ? values : nullptr;
}

void DistinctItems::limit_uses(uint64_t needed) {
  const bool tallied = !spec_.tallies.empty();
  for (auto& choice : spec_.rest) {
    const Values* values = fewer(choice, needed);
    if (!values) continue;
    const uint64_t uses = values->found.size();
    if (!tallied) {
      spec_.max = std::min(spec_.max, uses);
      continue;
    }
    if (spec_.tallies.size() == ArraySpec::kMaxTallies) {
      throw ResourceLimit("counted_kinds", ArraySpec::kMaxTallies, "of items of one array (contains, uniqueItems)");
    }
    choice.tallies |= 1u << spec_.tallies.size();
    spec_.tallies.push_back({0, uses});
  }
}

bool DistinctItems::can_differ(uint64_t from, TextSet used, const std::string& taken) const {
  // Matches places to values by augmenting paths (Kuhn's algorithm).
  std::map<std::string, const Scarce*> owner;
  std::vector<std::string> visited;
  const auto place = [&](const auto& self, const Scarce& one) -> bool {
    for (const std::string& value : one.values) {
      if (value == taken || used.contains(value)) continue;
      if (std::find(visited.begin(), visited.end(), value) != visited.end()) continue;
      visited.push_back(value);
      const auto [it, free] = owner.try_emplace(value, &one);
      if (free) return true;
      if (self(self, *it->second)) return it->second = &one, true;
    }
    return false;
  };
  return std::all_of(scarce_.begin(), scarce_.end(), [&](const Scarce& one) {
    visited.clear();
    return one.index < from || place(place, one);
  });
}

TextSet DistinctItems::taken(const Items& items, Registers& registers) const {
  const TextSet used(items.used);
  TextSet taken = used;
  for (const Scarce& place : scarce_) {
    if (place.index <= items.count) continue;
    for (const std::string& value : place.values) {
      if (taken.contains(value) || can_differ(items.count + 1, used, value)) continue;
      taken = taken.with(value, registers);
    }
  }
  return taken;
}

// ---- Registers.

DistinctItems::Items DistinctItems::unpack(Reg reg) {
  Items items;
  if (!reg) return items;
  const auto words = Registers::words(reg);
  items.count = words[0], items.used = words[1], items.taken = words[2], items.text = words[3];
  items.item = reinterpret_cast<const Configuration*>(words[4]);
  items.base = words[5], items.rivals = static_cast<Rivals>(words[6]), items.rival_list = words[7];
  return items;
}

Reg DistinctItems::pack(const Items& items, Registers& registers) {
  return registers.make(std::array{items.count, items.used, items.taken, items.text,
                                   reinterpret_cast<uint64_t>(items.item), items.base,
                                   static_cast<uint64_t>(items.rivals), items.rival_list});
}

std::string DistinctItems::text_of(const Items& items) {
  std::string text;
  for (Reg list = items.text; list; list = Registers::words(list)[0]) {
    text += static_cast<char>(Registers::words(list)[1]);
  }
  std::reverse(text.begin(), text.end());
  return text;
}

// ---- Guards.

bool DistinctItems::begin(Reg& reg, RuleId rule, uint8_t byte, Registers& registers) const {
  Items items = unpack(reg);
  items.base = registers.depth + 1;
  items.taken = taken(items, registers).root();
  items.rivals = items.taken ? Rivals::all : Rivals::none;
  const StackTop start{grammar_->entry(rule), 0, nullptr};
  if (!follow(items, {&start, 1}, byte, registers)) return false;
  reg = pack(items, registers);
  return true;
}

bool DistinctItems::step(Reg& reg, uint8_t byte, Registers& registers) const {
  Items items = unpack(reg);
  if (!follow(items, items.item->tops(), byte, registers)) return false;
  reg = pack(items, registers);
  return true;
}

bool DistinctItems::follow(Items& items, std::span<const StackTop> tops, uint8_t byte, Registers& registers) const {
  ConfigurationStore& store = *registers.configurations;
  {
    const Inside embedded(registers, items.base);
    Stepper stepper(*grammar_, store, registers);
    std::vector<StackTop> next;
    for (const StackTop& top : tops) stepper.step(top, byte, next);
    if (next.empty()) return false;
    items.item = next.size() == 1 ? store.make(next.front()) : store.make(next);
  }
  if (items.text != kForgotten)
    items.text = registers.make(std::array<uint64_t, 3>{items.text, byte, text_length(items) + 1});
  if (registers.searching && items.rivals != Rivals::none) items.rivals = Rivals::unwatched;
  return is_viable(items, registers);
}

/// True if some parse of the item is a scalar under way.
bool DistinctItems::is_scalar(const Items& items) const {
  return items.item->depth == 1 && std::ranges::any_of(items.item->tops(), [&](const StackTop& top) {
           const Rule* rule = grammar_->rule(top.state);
           return rule && rule->callees().empty();
         });
}

/// True if completions depend on nothing but how the item may end.
bool DistinctItems::differs(const Items& items, const Registers& registers) {
  const bool by_end = registers.only_endings && registers.nesting == 0;
  return by_end && items.rivals == Rivals::none && text_length(items) <= kBoundedLength;
}

void DistinctItems::forget(Items& items) {
  items = {.text = kForgotten, .item = items.item, .base = items.base, .rivals = Rivals::none};
}

bool DistinctItems::is_viable(Items& items, Registers& registers) const {
  if (items.rivals == Rivals::none || items.rivals == Rivals::unwatched) return true;
  if (!registers.interning()) {
    if (has_variety(items.item, kManyValues - 1)) return true;
    registers.indescribable = true;
  }
  const bool varied = has_variety(items.item, rival_count(items));
  // Filters rivals whenever the text has doubled, or when there are few, so that the tokens of a mask need not each do
  // it again.
  const bool soon = rival_count(items) <= kFewRivals || std::has_single_bit(text_length(items));
  if (varied && !(registers.interning() && soon)) return true;
  narrow(items, registers);
  if (varied || items.rivals == Rivals::none || has_variety(items.item, rival_count(items))) return true;
  return shortest_end(items).has_value();
}

bool DistinctItems::has_variety(const Configuration* item, uint64_t beyond) const {
  std::array<const Configuration*, kMaxFrames> pending;  // asked for every byte: no allocations
  pending[0] = item;
  for (size_t i = 0, end = 1; i < end; ++i) {
    for (const StackTop& top : pending[i]->tops()) {
      if (grammar_->count_values(top.state, top.reg) > beyond) return true;
      if (top.parent && end < kMaxFrames) pending[end++] = top.parent;
    }
  }
  return false;
}

uint64_t DistinctItems::rival_count(const Items& items) const {
  return items.rivals == Rivals::some ? Registers::words(items.rival_list)[1] : taken_count(items);
}

std::vector<Reg> DistinctItems::rivals(const Items& items) {
  if (items.rivals != Rivals::some) return TextSet(items.taken).texts();
  std::vector<Reg> out;
  for (Reg list = items.rival_list; list; list = Registers::words(list)[0]) out.push_back(Registers::words(list)[2]);
  return out;
}

void DistinctItems::narrow(Items& items, Registers& registers) const {
  const ItemText text(text_of(items));
  Reg list = 0;
  uint64_t length = 0;
  for (const Reg rival : rivals(items)) {
    if (text.may_become(json::text_of(rival))) list = registers.make(std::array{list, ++length, rival});
  }
  items.rivals = list ? Rivals::some : Rivals::none;
  items.rival_list = list;
}

/// True if the item, completed by `bytes`, is shorter than every text that has a value of a rival.
bool DistinctItems::ends_before_rivals(const Items& items, uint64_t bytes) {
  const std::vector<Reg> all = items.rivals == Rivals::none ? std::vector<Reg>() : rivals(items);
  const uint64_t length = add_lengths(text_length(items), bytes);
  return std::ranges::all_of(all, [&](Reg rival) { return length < least_length(json::text_of(rival)); });
}

std::optional<ValueSearch::Found> DistinctItems::shortest_end(const Items& items) const {
  const std::string text = text_of(items);
  const uint64_t taken = hash_of(TextSet(items.taken));
  const bool shared = ends_are_shared();
  if (shared) {
    if (auto known = known_end(text, taken)) return known;
  }
  Ends ends = begin_ends(items, text, shared);
  const auto is_taken = [&](const ValueSearch::Found& one) { return TextSet(items.taken).contains(one.value); };
  const auto known = std::ranges::find_if_not(ends.found, is_taken);
  std::optional<ValueSearch::Found> found;
  if (known != ends.found.end()) found = *known;
  while (!found || is_taken(*found)) {
    found = ends.search->next();
    if (!found) break;
    ends.found.push_back(*found);
  }
  if (!shared) return found;
  if (found) keep_end({taken, text.size(), text + found->added, found->value});
  keep_ends(std::move(ends));
  return found;
}

/// Goes on with a search from the same text, or begins one. That of an array that is not like others uses memory of the
/// matcher, and cannot be kept.
DistinctItems::Ends DistinctItems::begin_ends(const Items& items, const std::string& text, bool shared) const {
  if (!shared || text.size() > kMaxKeptText) {
    return {text,
            std::make_unique<ValueSearch>(*grammar_, items.item, text, static_cast<uint32_t>(items.base), style_)};
  }
  const std::lock_guard lock(ends_mutex_);
  const auto known = std::ranges::find(begun_, text, &Ends::text);
  if (known != begun_.end()) {
    Ends ends = std::move(*known);
    begun_.erase(known);
    return ends;
  }
  return {text, std::make_unique<ValueSearch>(*grammar_, spec_.rest.front().value, text, style_)};
}

void DistinctItems::keep_ends(Ends ends) const {
  if (ends.text.size() > kMaxKeptText) return;
  const std::lock_guard lock(ends_mutex_);
  if (begun_.size() == kMaxBegun) begun_.pop_back();
  begun_.push_front(std::move(ends));
}

std::optional<ValueSearch::Found> DistinctItems::known_end(std::string_view text, uint64_t taken) const {
  const std::lock_guard lock(ends_mutex_);
  for (const End& end : ends_) {
    if (end.taken != taken || text.size() < end.begin || !end.text.starts_with(text)) continue;
    return ValueSearch::Found{end.value, end.text.size() - text.size(), end.text.substr(text.size())};
  }
  return std::nullopt;
}

void DistinctItems::keep_end(End end) const {
  const std::lock_guard lock(ends_mutex_);
  if (ends_.size() == kMaxEnds) ends_.pop_back();
  ends_.push_front(std::move(end));
}

bool DistinctItems::may_end(Reg reg, Registers& registers) const {
  const Items items = unpack(reg);
  if (!items.item) return true;  // see `release`
  if (!items.item->accepting) return false;
  if (items.rivals == Rivals::none) return true;
  registers.indescribable = true;
  return !TextSet(items.taken).contains(ItemText(text_of(items)).value());
}

Reg DistinctItems::end(Reg reg, Registers& registers) const {
  const Items items = unpack(reg);
  Items after;
  after.count = items.count + 1;
  after.used = TextSet(items.used).with(ItemText(text_of(items)).value(), registers).root();
  return pack(after, registers);
}

bool DistinctItems::may_go_on(Reg reg, Registers& registers) const {
  const bool forgotten = unpack(reg).text == kForgotten;
  registers.indescribable |= forgotten;
  return !forgotten;
}

bool DistinctItems::another(Reg reg, RuleId rule, Registers& registers) const {
  const Items items = unpack(reg);
  const uint64_t variety = grammar_->count_values_of(rule);
  if (variety == kManyValues) return true;
  registers.indescribable = true;
  if (variety > taken_count(items)) return true;
  const TextSet taken = this->taken(items, registers);
  const auto lock = grammar_->lock();
  for (size_t i = 0;; ++i) {
    const Values* values = values_of(rule, i + 1);
    if (!values) return true;
    if (values->found.size() <= i) return false;
    if (!taken.contains(values->found[i].value)) return true;
  }
}

WildcardRegion DistinctItems::wildcard_region(Reg reg) const {
  const Items items = unpack(reg);
  // Uses the region of one parse thread; the exact set is the union, so `exact` is dropped.
  WildcardRegion best;
  for (const StackTop& top : items.item->tops()) {
    const WildcardRegion text = grammar_->wildcard_region(top.state, top.reg);
    const auto worth = [](const WildcardRegion& one) { return std::pair(one.max_length, one.characters.count()); };
    if (worth(text) > worth(best)) best = text;
  }
  if (items.item->count > 1) {
    best.exact = false;
    best.leaving.fill();
  }
  if (best.max_length == WildcardRegion::kUnbounded || items.rivals == Rivals::none) return best;
  // A text of a bounded region goes on in more ways than there are rivals, until few characters are left.
  for (uint64_t ways = 1; ways <= rival_count(items) && best.max_length > 0; ways *= kPlainCharacters) {
    --best.max_length, best.exact = false;
  }
  return best.max_length > 0 ? best : WildcardRegion();
}

uint64_t DistinctItems::max_growth(Reg reg) const {
  const Items items = unpack(reg);
  if (items.item->count != 1) return kInfinite;
  const StackTop& top = items.item->tops().front();
  uint64_t growth = grammar_->max_growth(top.state, top.reg);
  if (items.rivals == Rivals::none) return growth;
  if (wildcard_region(reg).max_length != WildcardRegion::kUnbounded)
    return add_lengths(growth, grammar_->max_to_differ(top.state));
  // Texts with enough further characters differ in more values than there are rivals.
  for (uint64_t values = 1; values <= rival_count(items); values *= kPlainCharacters) growth = add_lengths(growth, 1);
  return growth;
}

ByteSet DistinctItems::likely_bytes(Reg reg) const {
  ByteSet bytes;
  for (const StackTop& top : unpack(reg).item->tops()) bytes.add(grammar_->likely_bytes(top.state, top.reg));
  return bytes;
}

ByteSet DistinctItems::known_bytes(Reg reg) const {
  const Items items = unpack(reg);
  ByteSet bytes;
  if (!ends_are_shared() || items.text == kForgotten || items.rivals == Rivals::none) return bytes;
  const auto known = known_end(text_of(items), hash_of(TextSet(items.taken)));
  if (known && !known->added.empty()) bytes.add(static_cast<uint8_t>(known->added.front()));
  return bytes;
}

const Configuration* DistinctItems::release(Reg& reg, Registers& registers) const {
  Items items = unpack(reg);
  // Texts of scalars are kept: many tokens end one and begin the next.
  if (items.item->accepting || is_scalar(items) || !differs(items, registers)) return nullptr;
  const Configuration* item = std::exchange(items.item, nullptr);
  forget(items);
  reg = pack(items, registers);
  return item;
}

bool DistinctItems::forget(Reg& reg, Registers& registers) const {
  Items items = unpack(reg);
  if (!differs(items, registers)) return false;
  forget(items);
  reg = pack(items, registers);
  return true;
}

std::optional<const Configuration*> DistinctItems::embedded(Reg reg) const {
  const Items items = unpack(reg);
  if (text_length(items) > kBoundedLength) return std::nullopt;
  return items.item;
}

bool DistinctItems::describe(Reg reg, std::vector<uint64_t>& out) const {
  const Items items = unpack(reg);
  if (!scarce_.empty() || items.rivals == Rivals::unwatched) return false;
  out.push_back(items.rivals == Rivals::none);
  return !items.item || describe(*items.item, items.base, out);
}

bool DistinctItems::describe(const Configuration& item, uint64_t base, std::vector<uint64_t>& out) const {
  std::vector<const Configuration*> pending{&item};
  for (size_t i = 0; i < pending.size(); ++i) {
    if (pending.size() > kMaxDescribed) return false;
    const Configuration& at = *pending[i];
    out.push_back(uint64_t{at.count} << 1 | at.accepting);
    for (const StackTop& top : at.tops()) {
      const uint32_t parent = top.parent_depth();
      if (!grammar_->describe(top.state, top.reg, static_cast<uint32_t>(base) + parent, Detail::full, out))
        return false;
      if (!top.parent) continue;
      const auto match = std::find(pending.begin(), pending.end(), top.parent);
      out.push_back(static_cast<uint64_t>(match - pending.begin()));
      if (match == pending.end()) pending.push_back(top.parent);
    }
  }
  return true;
}

// ---- Lengths and values.

uint64_t DistinctItems::length_with(Reg reg, uint64_t count, const Lengths& lengths) const {
  const Items items = unpack(reg);
  const uint64_t plain = lengths[spec_.rest.front().value];
  const auto all_plain = [&](uint64_t items) {
    return items == 0 ? 0 : plain > kInfinite / items ? kInfinite : items * plain;
  };
  const uint64_t values_so_far = items.count + (items.item ? 1 : 0) + count;
  if (!grammar_ || (values_so_far < 2 && !items.item)) return all_plain(count);

  uint64_t sum = 0;
  std::string last;
  if (items.item && (items.rivals == Rivals::unwatched || count == 0)) sum = Costs(*grammar_).of(items.item);
  const bool differs = items.rivals == Rivals::unwatched || (count == 0 && ends_before_rivals(items, sum));
  if (items.item && !differs) {
    const auto end = shortest_end(items);
    if (!end) return kInfinite;
    sum = end->length, last = end->value;
  }
  for (size_t i = 0; count > 0; ++i) {
    const Values* values = values_of(spec_.rest.front().value, i + 1);
    if (!values) return add_lengths(sum, all_plain(count));
    if (values->found.size() <= i) return kInfinite;
    const ValueSearch::Found& found = values->found[i];
    if (found.value == last || TextSet(items.used).contains(found.value)) continue;
    sum = add_lengths(sum, found.length);
    --count;
  }
  return sum;
}

Lengths DistinctItems::lengths_of_others(Reg reg, uint64_t count, const Lengths& lengths) const {
  const Items items = unpack(reg);
  uint64_t values_needed = items.count + (items.item ? 1 : 0) + count;
  if (count == 0 || values_needed < 2 || !grammar_) return lengths;
  values_needed += scarce_values_;
  Lengths longer = lengths;
  for (uint64_t index = 0; index <= spec_.prefix.size(); ++index) {
    for (const auto& choice : spec_.choices(index)) {
      if (lengths[choice.value] == kInfinite) continue;
      const Values* values = values_of(choice.value, values_needed);
      if (!values) continue;
      const auto& found = values->found;
      const bool spent = values->all && std::all_of(found.begin(), found.end(), [&](const ValueSearch::Found& one) {
                           return TextSet(items.used).contains(one.value);
                         });
      longer[choice.value] = spent ? kInfinite : found[std::min<size_t>(values_needed, found.size()) - 1].length;
    }
  }
  return longer;
}

const DistinctItems::Values* DistinctItems::values_of(RuleId rule, uint64_t count) const {
  Values& values = values_[rule];
  if (values.all || values.found.size() >= count) return &values;
  // An array that contains itself asks for its own values recursively.
  if (values.searching) return nullptr;
  values.searching = true;
  try {
    if (!values.search) values.search = std::make_unique<ValueSearch>(*grammar_, rule, "", style_);
    while (!values.all && values.found.size() < count) {
      auto found = values.search->next();
      if (!found) values.all = true;
      if (found) values.found.push_back(std::move(*found));
    }
  } catch (...) {
    values_.erase(rule);
    throw;
  }
  values.searching = false;
  return &values;
}

}  // namespace constrain::json
