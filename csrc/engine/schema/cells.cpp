#include "engine/schema/cells.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "engine/automata/numbers/modulus.h"
#include "engine/base/deadline.h"
#include "engine/base/errors.h"

namespace constrain::schema {

namespace {

template <class Element>
bool contains_all(const std::vector<Element>& all, const std::vector<Element>& some) {
  return std::ranges::all_of(some, [&](const Element& one) { return std::ranges::find(all, one) != all.end(); });
}

// Tests whether every condition of a cell is also one of another, so that the other is contained in it.

bool holds_all_of(const NumberCell& general, const NumberCell& special) {
  return general == special || general == NumberCell{};
}

bool holds_all_of(const StringCell& general, const StringCell& special) {
  if (general.words || special.words) return general == special || general.any();
  return general.min <= special.min && general.max >= special.max && contains_all(special.contents, general.contents);
}

bool holds_all_of(const ArrayCell& general, const ArrayCell& special) {
  const bool any_items = general.prefix.empty() && general.rest == 0;
  return (any_items || (general.prefix == special.prefix && general.rest == special.rest)) &&
         general.min <= special.min && general.max >= special.max && (!general.unique || special.unique) &&
         contains_all(special.contains, general.contains);
}

/// True if every object of a cell has a certain member.
bool has_member(const ObjectCell& cell, const Exists& member) {
  const auto meets = [&](std::string_view name) { return member.keys.language->contains(name); };
  return std::ranges::find(cell.exists, member) != cell.exists.end() ||
         (member.value == 0 && std::ranges::any_of(cell.required, meets));
}

bool holds_all_of(const ObjectCell& general, const ObjectCell& special) {
  return general.min <= std::max<uint64_t>(special.min, special.required.size()) && general.max >= special.max &&
         contains_all(special.members, general.members) && contains_all(special.required, general.required) &&
         contains_all(special.dependents, general.dependents) && contains_all(special.names, general.names) &&
         std::ranges::all_of(general.exists, [&](const Exists& member) { return has_member(special, member); });
}

/// Bits for the conditions of a cell; a cell contained in another has all of its bits.
uint64_t outline(const ObjectCell& cell) {
  uint64_t bits = 0;
  const auto add = [&](uint64_t condition) { bits |= uint64_t{1} << (condition * 0x9E3779B97F4A7C15ull >> 58); };
  for (const Members& members : cell.members) {
    uint64_t names = 0;
    for (const auto& [name, value] : members.named) names = 31 * names + std::hash<std::string_view>()(name) + value;
    add(names ^ uint64_t{members.additional} << 16 ^ members.patterns.size());
  }
  for (const std::string_view name : cell.required) add(std::hash<std::string_view>()(name));
  return bits;
}

/// Drops cells contained in others: the product of unions with common members would have most of its cells twice.
void drop_contained(std::vector<ObjectCell>& cells) {
  std::vector<uint64_t> outlines;
  std::ranges::transform(cells, std::back_inserter(outlines), outline);
  std::vector<bool> dropped(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    Deadline::check();
    for (size_t k = 0; k < cells.size() && !dropped[i]; ++k) {
      const bool may_contain = k != i && !dropped[k] && (outlines[k] & ~outlines[i]) == 0;
      dropped[i] = may_contain && holds_all_of(cells[k], cells[i]);
    }
  }
  size_t at = 0;
  std::erase_if(cells, [&](const ObjectCell&) { return dropped[at++]; });
}

template <class Cell>
bool joined(std::vector<Cell>&, Cell&) {
  return false;
}

/// Adds listed strings to a cell that has some, if there is one.
bool joined(std::vector<StringCell>& into, StringCell& cell) {
  if (!cell.words) return false;
  const auto known = std::ranges::find_if(into, [](const StringCell& one) { return one.words.has_value(); });
  if (known == into.end()) return false;
  known->words->merge(*cell.words);
  return true;
}

/// Adds cells, and drops those contained in another one.
template <class Cell>
void append(std::vector<Cell>& into, std::vector<Cell>&& other) {
  for (Cell& cell : other) {
    Deadline::check();
    if (joined(into, cell)) continue;
    if (std::ranges::any_of(into, [&](const Cell& one) { return holds_all_of(one, cell); })) continue;
    std::erase_if(into, [&](const Cell& one) { return holds_all_of(cell, one); });
    into.push_back(std::move(cell));
  }
}

/// Many objects are compared by their outlines first.
void append(std::vector<ObjectCell>& into, std::vector<ObjectCell>&& other) {
  constexpr size_t kMany = 16;
  if (other.size() < kMany) return append<ObjectCell>(into, std::move(other));
  std::ranges::move(other, std::back_inserter(into));
  drop_contained(into);
}

template <class Element>
void add_missing(std::vector<Element>& into, const std::vector<Element>& other) {
  for (const Element& element : other) {
    if (std::find(into.begin(), into.end(), element) == into.end()) into.push_back(element);
  }
}

/// Returns the stricter of two bounds; `sign` is 1 for lower and -1 for upper bounds.
std::optional<Bound> stricter(const std::optional<Bound>& a, const std::optional<Bound>& b, int sign) {
  if (!a || !b) return a ? a : b;
  const int order = sign * compare(a->value, b->value);
  if (order == 0) return Bound{a->value, a->exclusive || b->exclusive};
  return order > 0 ? a : b;
}

bool holds(const NumberCell& cell, const Decimal& value) {
  const NumberRange& range = cell.range;
  if ((range.integer && !value.is_integer()) || (cell.fractional && value.is_integer())) return false;
  if (range.lower) {
    const int order = compare(value, range.lower->value);
    if (order < 0 || (order == 0 && range.lower->exclusive)) return false;
  }
  if (range.upper) {
    const int order = compare(value, range.upper->value);
    if (order > 0 || (order == 0 && range.upper->exclusive)) return false;
  }
  const auto divisor = [&](const Decimal& one) { return Modulus::common({one}, false).divides(value); };
  return std::all_of(range.multiples_of.begin(), range.multiples_of.end(), divisor) &&
         std::none_of(cell.not_multiples_of.begin(), cell.not_multiples_of.end(), divisor) &&
         std::find(cell.excluded.begin(), cell.excluded.end(), value) == cell.excluded.end();
}

/// True if the common multiples of the divisors are all multiples of one that is excluded. Products of automata would
/// find that as well, but visit states for every remainder.
bool excludes_all_multiples(const NumberCell& cell) {
  if (cell.not_multiples_of.empty() || (cell.range.multiples_of.empty() && !cell.range.integer)) return false;
  try {
    const Modulus common = Modulus::common(cell.range.multiples_of, cell.range.integer);
    const Decimal step{.digits = std::to_string(common.modulus), .exponent = -int64_t{common.scale}};
    const auto divides_all = [&](const Decimal& one) { return Modulus::common({one}, false).divides(step); };
    return std::ranges::any_of(cell.not_multiples_of, divides_all);
  } catch (const ResourceLimit&) {
    return false;  // the automata decide, or refuse
  }
}

std::optional<NumberCell> intersect(const NumberCell& a, const NumberCell& b) {
  NumberCell out = a;
  out.values.reset();
  out.range.integer |= b.range.integer;
  out.range.max_digits_with_point = std::min(out.range.max_digits_with_point, b.range.max_digits_with_point);
  out.fractional |= b.fractional;
  if (out.range.integer && out.fractional) return std::nullopt;
  out.range.lower = stricter(a.range.lower, b.range.lower, 1);
  out.range.upper = stricter(a.range.upper, b.range.upper, -1);
  add_missing(out.range.multiples_of, b.range.multiples_of);
  add_missing(out.not_multiples_of, b.not_multiples_of);
  add_missing(out.excluded, b.excluded);
  if (out.range.lower && out.range.upper && compare(out.range.lower->value, out.range.upper->value) > 0)
    return std::nullopt;
  if (excludes_all_multiples(out)) return std::nullopt;
  if (!a.values && !b.values) return out;
  out.values.emplace();
  for (const Decimal& value : a.values ? *a.values : *b.values) {
    const bool in_both =
        !a.values || !b.values || std::find(b.values->begin(), b.values->end(), value) != b.values->end();
    if (in_both && holds(out, value)) out.values->push_back(value);
  }
  if (out.values->empty()) return std::nullopt;
  return NumberCell{.range = {.max_digits_with_point = out.range.max_digits_with_point},
                    .values = std::move(out.values)};
}

std::optional<StringCell> intersect(const StringCell& a, const StringCell& b) {
  StringCell out;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  if (out.min > out.max) return std::nullopt;
  out.contents = a.contents;
  add_missing(out.contents, b.contents);
  if (!a.words && !b.words) return out;
  out.words.emplace();
  for (const std::string_view word : a.words ? *a.words : *b.words) {
    const uint64_t length = scalar_count(word);
    const bool fits =
        length >= out.min && length <= out.max && (!a.words || !b.words || b.words->contains(word)) &&
        std::all_of(out.contents.begin(), out.contents.end(), [&](auto& c) { return c.language->contains(word); });
    if (fits) out.words->insert(word);
  }
  if (out.words->empty()) return std::nullopt;
  out.min = 0, out.max = kInfinite, out.contents.clear();
  return out;
}

std::optional<ArrayCell> intersect(const ArrayCell& a, const ArrayCell& b, Conjunctions& conjunctions) {
  ArrayCell out;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  if (out.min > out.max) return std::nullopt;
  out.rest = conjunctions.join(a.rest, b.rest);
  out.contains = a.contains;
  add_missing(out.contains, b.contains);
  out.unique = a.unique ? a.unique : b.unique;
  const size_t prefix = std::max(a.prefix.size(), b.prefix.size());
  for (size_t i = 0; i < prefix; ++i) {
    out.prefix.push_back(
        conjunctions.join(i < a.prefix.size() ? a.prefix[i] : a.rest, i < b.prefix.size() ? b.prefix[i] : b.rest));
  }
  return out;
}

std::optional<ObjectCell> intersect(const ObjectCell& a, const ObjectCell& b) {
  ObjectCell out = a;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  add_missing(out.members, b.members);
  add_missing(out.required, b.required);
  add_missing(out.dependents, b.dependents);
  add_missing(out.names, b.names);
  add_missing(out.exists, b.exists);
  if (out.min > out.max || out.required.size() > out.max) return std::nullopt;
  return out;
}

template <class Cell, class Intersect>
std::vector<Cell> pairwise(const std::vector<Cell>& a, const std::vector<Cell>& b, const Intersect& intersect) {
  std::vector<Cell> out;
  for (const Cell& x : a) {
    for (const Cell& y : b) {
      Deadline::check();
      if (std::optional<Cell> both = intersect(x, y)) out.push_back(std::move(*both));
    }
  }
  return out;
}

}  // namespace

Cells Cells::everything() {
  Cells all;
  all.null = all.booleans[0] = all.booleans[1] = true;
  all.numbers.emplace_back();
  all.strings.emplace_back();
  all.arrays.emplace_back();
  all.objects.emplace_back();
  return all;
}

bool Cells::empty() const { return !null && !booleans[0] && !booleans[1] && count() == 0; }

ConjunctionId Conjunctions::intern(std::vector<Literal> literals) {
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  return number(literals);
}

ConjunctionId Conjunctions::number(std::span<const Literal> literals) {
  key_.clear();
  for (const Literal& one : literals) key_.push_back(2 * one.node + one.negated);
  const ConjunctionId id = ids_.intern(key_);
  if (id == literals_.size()) {
    auto* kept = memory_.allocate_object<Literal>(literals.size());
    std::ranges::copy(literals, kept);
    literals_.emplace_back(kept, literals.size());
  }
  return id;
}

ConjunctionId Conjunctions::join(ConjunctionId a, ConjunctionId b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  std::vector<Literal> both(literals_[a].begin(), literals_[a].end());
  both.insert(both.end(), literals_[b].begin(), literals_[b].end());
  return intern(std::move(both));
}

Cells intersect(const Cells& a, const Cells& b, Conjunctions& conjunctions) {
  Cells out;
  out.null = a.null && b.null;
  for (int i = 0; i < 2; ++i) out.booleans[i] = a.booleans[i] && b.booleans[i];
  out.numbers = pairwise(a.numbers, b.numbers, [](auto& x, auto& y) { return intersect(x, y); });
  out.strings = pairwise(a.strings, b.strings, [](auto& x, auto& y) { return intersect(x, y); });
  out.arrays = pairwise(a.arrays, b.arrays, [&](auto& x, auto& y) { return intersect(x, y, conjunctions); });
  out.objects = pairwise(a.objects, b.objects, [](auto& x, auto& y) { return intersect(x, y); });
  if (a.objects.size() > 1 && b.objects.size() > 1) drop_contained(out.objects);
  return out;
}

void unite(Cells& into, Cells other) {
  into.null |= other.null;
  for (int i = 0; i < 2; ++i) into.booleans[i] |= other.booleans[i];
  append(into.numbers, std::move(other.numbers));
  append(into.strings, std::move(other.strings));
  append(into.arrays, std::move(other.arrays));
  append(into.objects, std::move(other.objects));
}

Cells only(NumberCell cell) {
  Cells cells;
  cells.numbers.push_back(std::move(cell));
  return cells;
}

Cells only(StringCell cell) {
  Cells cells;
  cells.strings.push_back(std::move(cell));
  return cells;
}

Cells only(ArrayCell cell) {
  Cells cells;
  cells.arrays.push_back(std::move(cell));
  return cells;
}

Cells only(ObjectCell cell) {
  Cells cells;
  cells.objects.push_back(std::move(cell));
  return cells;
}

Content outside(const Content& content) { return {"not " + content.id, complement(content.language)}; }

Content keys_beyond(const std::vector<std::string_view>& names, const std::vector<Content>& patterns) {
  Content keys{"any", any_text()};
  if (!names.empty()) {
    std::string id = "names";
    for (const std::string_view name : names) (id += " " + std::to_string(name.size()) + ":") += name;
    keys = outside({id, literal_set(names)});
  }
  for (const Content& pattern : patterns) {
    const Content other = outside(pattern);
    keys = {keys.id + " and " + other.id, constrain::intersect(keys.language, other.language)};
  }
  return keys;
}

MemberValues::MemberValues(const ObjectCell& cell, Conjunctions& conjunctions)
    : cell_(cell), conjunctions_(conjunctions) {
  constexpr size_t kFew = 16;  // names that are found sooner without an index
  for (size_t i = 0; i < cell.members.size(); ++i) {
    const std::vector<Named>& named = cell.members[i].named;
    if (named.size() <= kFew) continue;
    sorted_.resize(cell.members.size());
    sorted_[i].reserve(named.size());
    for (const Named& one : named) sorted_[i].push_back(&one);
    std::ranges::sort(sorted_[i], {}, &Named::first);
  }
}

ConjunctionId MemberValues::operator[](std::string_view key) const {
  ConjunctionId value = 0;
  for (size_t i = 0; i < cell_.members.size(); ++i) {
    bool found = false;
    const auto apply = [&](ConjunctionId schema) { value = conjunctions_.join(value, schema), found = true; };
    if (i < sorted_.size() && !sorted_[i].empty()) {
      for (const Named* named : std::ranges::equal_range(sorted_[i], key, {}, &Named::first)) apply(named->second);
    } else {
      for (const auto& [name, schema] : cell_.members[i].named) {
        if (name == key) apply(schema);
      }
    }
    for (const KeyPattern& pattern : cell_.members[i].patterns) {
      if (pattern.keys.language->contains(key)) apply(pattern.schema);
      if (pattern.doubtful && pattern.doubtful->language->contains(key))
        value = conjunctions_.join(value, pattern.schema);
    }
    if (!found) value = conjunctions_.join(value, cell_.members[i].additional);
  }
  return value;
}

std::vector<ConjunctionId> needed(const ArrayCell& cell) {
  const uint64_t in_prefix = std::min<uint64_t>(cell.min, cell.prefix.size());
  std::vector<ConjunctionId> items(cell.prefix.begin(), cell.prefix.begin() + static_cast<std::ptrdiff_t>(in_prefix));
  if (cell.min > cell.prefix.size()) items.push_back(cell.rest);
  return items;
}

std::vector<ConjunctionId> needed(const ObjectCell& cell, Conjunctions& conjunctions) {
  std::vector<ConjunctionId> values;
  if (cell.required.empty()) return values;
  const MemberValues members(cell, conjunctions);
  values.reserve(cell.required.size());
  for (const std::string_view name : cell.required) values.push_back(members[name]);
  return values;
}

uint64_t scalar_count(std::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace constrain::schema
