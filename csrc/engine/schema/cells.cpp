#include "engine/schema/cells.h"

#include <algorithm>
#include <iterator>

namespace constrain::schema {

namespace {

void append(auto& into, auto&& other) {
  into.insert(into.end(), std::make_move_iterator(other.begin()), std::make_move_iterator(other.end()));
}

/// The stricter of two bounds; `sign` is 1 for lower bounds and -1 for upper ones.
std::optional<Bound> stricter(const std::optional<Bound>& a, const std::optional<Bound>& b, int sign) {
  if (!a || !b) return a ? a : b;
  const int order = sign * compare(a->value, b->value);
  if (order == 0) return Bound{a->value, a->exclusive || b->exclusive};
  return order > 0 ? a : b;
}

bool in_range(const Decimal& value, const NumberRange& range) {
  if (range.integer && !value.is_integer()) return false;
  if (range.lower) {
    const int order = compare(value, range.lower->value);
    if (order < 0 || (order == 0 && range.lower->exclusive)) return false;
  }
  if (range.upper) {
    const int order = compare(value, range.upper->value);
    if (order > 0 || (order == 0 && range.upper->exclusive)) return false;
  }
  if (range.multiples_of.empty()) return true;
  // The automaton decides divisibility, so that there is one definition of it.
  NumberRange exact = range;
  exact.lower = exact.upper = Bound{value, false};
  return !is_empty(*number_language(exact));
}

std::optional<NumberCell> intersect(const NumberCell& a, const NumberCell& b) {
  NumberCell out;
  out.range = a.range;
  out.range.integer |= b.range.integer;
  out.range.lower = stricter(a.range.lower, b.range.lower, 1);
  out.range.upper = stricter(a.range.upper, b.range.upper, -1);
  for (const Decimal& one : b.range.multiples_of) {
    auto& all = out.range.multiples_of;
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
  if (!a.values && !b.values) return out;
  out.values.emplace();
  for (const Decimal& value : a.values ? *a.values : *b.values) {
    const bool in_both = !a.values || !b.values || std::find(b.values->begin(), b.values->end(), value) != b.values->end();
    if (in_both && in_range(value, out.range)) out.values->push_back(value);
  }
  if (out.values->empty()) return std::nullopt;
  return out;
}

std::optional<StringCell> intersect(const StringCell& a, const StringCell& b) {
  StringCell out;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  if (out.min > out.max) return std::nullopt;
  out.contents = a.contents;
  for (const Content& content : b.contents) {
    const bool known = std::any_of(out.contents.begin(), out.contents.end(), [&](auto& c) { return c.id == content.id; });
    if (!known) out.contents.push_back(content);
  }
  if (!a.words && !b.words) return out;
  out.words.emplace();
  for (const std::string& word : a.words ? *a.words : *b.words) {
    const uint64_t length = scalar_count(word);
    const bool fits = length >= out.min && length <= out.max && (!a.words || !b.words || b.words->contains(word)) &&
                      std::all_of(out.contents.begin(), out.contents.end(), [&](auto& c) { return matches(*c.language, word); });
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
  const size_t prefix = std::max(a.prefix.size(), b.prefix.size());
  for (size_t i = 0; i < prefix; ++i) {
    out.prefix.push_back(conjunctions.join(i < a.prefix.size() ? a.prefix[i] : a.rest, i < b.prefix.size() ? b.prefix[i] : b.rest));
  }
  return out;
}

std::optional<ObjectCell> intersect(const ObjectCell& a, const ObjectCell& b) {
  ObjectCell out = a;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.members.insert(out.members.end(), b.members.begin(), b.members.end());
  for (const std::string& name : b.required) {
    if (std::find(out.required.begin(), out.required.end(), name) == out.required.end()) out.required.push_back(name);
  }
  for (const ConjunctionId names : b.names) {
    if (std::find(out.names.begin(), out.names.end(), names) == out.names.end()) out.names.push_back(names);
  }
  if (out.min > out.max || out.required.size() > out.max) return std::nullopt;
  return out;
}

template <class Cell, class Intersect>
std::vector<Cell> pairwise(const std::vector<Cell>& a, const std::vector<Cell>& b, const Intersect& intersect) {
  std::vector<Cell> out;
  for (const Cell& x : a) {
    for (const Cell& y : b) {
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

ConjunctionId Conjunctions::intern(std::vector<NodeId> nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const auto [it, added] = ids_.try_emplace(std::move(nodes), static_cast<ConjunctionId>(nodes_.size()));
  if (added) nodes_.push_back(&it->first);
  return it->second;
}

ConjunctionId Conjunctions::join(ConjunctionId a, ConjunctionId b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  std::vector<NodeId> both = *nodes_[a];
  both.insert(both.end(), nodes_[b]->begin(), nodes_[b]->end());
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
  return out;
}

void unite(Cells& into, Cells other) {
  into.null |= other.null;
  for (int i = 0; i < 2; ++i) into.booleans[i] |= other.booleans[i];
  append(into.numbers, other.numbers);
  append(into.strings, other.strings);
  append(into.arrays, other.arrays);
  append(into.objects, other.objects);
}

uint64_t scalar_count(std::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace constrain::schema
