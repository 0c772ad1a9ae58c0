#include "engine/schema/scalar_rules.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <ranges>

#include "engine/automata/formats/formats.h"
#include "engine/automata/numbers/number_bounds.h"
#include "engine/automata/shared_automaton.h"
#include "engine/base/errors.h"
#include "engine/json/bounded_string_rule.h"
#include "engine/json/host_name_rule.h"
#include "engine/json/object/cheapest_words.h"
#include "engine/json/string_rule.h"
#include "engine/json/verbatim_rule.h"
#include "engine/schema/normalise.h"

namespace constrain::schema {

namespace {

AutomatonPtr numbers(const NumberCell& cell) {
  NumberRange range = cell.range;
  std::vector<Decimal> divisors = cell.not_multiples_of;
  if (cell.fractional) divisors.push_back(Decimal::parse("1"));
  constexpr uint32_t kDigitsOfDoubles = 15;
  if (!range.integer && !divisors.empty()) range.max_digits = kDigitsOfDoubles;
  if (range.integer || !range.multiples_of.empty()) {
    range.not_multiples_of = std::exchange(divisors, {});
  } else if (!divisors.empty()) {
    // Exponents are excluded with divisibility, which an automaton cannot track through them; and so are numbers whose
    // fraction is lost in a double, which validators would take for integers.
    constexpr uint32_t kDigitsBeforeFraction = 12;
    range.max_integer_digits = std::min(range.max_integer_digits, kDigitsBeforeFraction);
    const auto scale = [](const Decimal& divisor) { return std::max<int64_t>(-divisor.exponent, 0); };
    const int64_t most = std::ranges::max(divisors | std::views::transform(scale));
    range.plain_scale = static_cast<uint32_t>(std::min<int64_t>(most, UINT32_MAX / 2));
  }
  AutomatonPtr language = number_language(range);
  for (const Decimal& divisor : divisors) {
    NumberRange multiples{.multiples_of = {divisor}};
    multiples.max_integer_digits = multiples.max_fraction_digits = uint32_t{kMaxPlainDigits};
    language = subtract(language, number_language(multiples));
  }
  for (const Decimal& value : cell.excluded) {
    NumberRange same;
    same.lower = same.upper = Bound{value, false};
    language = subtract(language, number_language(same));
  }
  return language;
}

std::string number_key(const NumberCell& cell) {
  std::string key;
  const auto add = [&](const Decimal& value) {
    key += (value.negative ? '-' : '+') + value.digits + 'e' + std::to_string(value.exponent);
  };
  const auto add_all = [&](const std::vector<Decimal>& values) { std::ranges::for_each(values, add), key += ';'; };
  const NumberRange& range = cell.range;
  for (const std::optional<Bound>& bound : {range.lower, range.upper}) {
    if (bound) add(bound->value), key += bound->exclusive ? 'x' : 'i';
    key += ';';
  }
  for (const auto* values : {&range.multiples_of, &range.not_multiples_of, &cell.not_multiples_of, &cell.excluded})
    add_all(*values);
  if (cell.values) key += '=', add_all(*cell.values);
  for (const uint32_t number : {uint32_t{range.integer}, uint32_t{cell.fractional}, range.max_digits_with_point,
                                range.max_integer_digits, range.max_fraction_digits, range.max_exponent})
    key += std::to_string(number) + ' ';
  return key;
}

bool integers_only(const NumberCell& cell) {
  return cell.values ? std::ranges::all_of(*cell.values, &Decimal::is_integer) : cell.range.integer;
}

/// Number ranges that all grammars share, and bytes from any of their states to the end of a word.
constexpr size_t kMaxRanges = 256;
constexpr uint64_t kFarthestInRange = 16;

/// True for numbers between bounds of few digits, whose automata are small.
bool is_short_range(const NumberCell& cell) {
  constexpr size_t kDigits = 6;
  const auto is_short = [](const std::optional<Bound>& bound) {
    return !bound || (bound->value.digits.size() <= kDigits && std::abs(bound->value.exponent) <= int64_t{kDigits});
  };
  const NumberRange& range = cell.range;
  const bool is_range = !cell.fractional && !cell.values && cell.not_multiples_of.empty() && cell.excluded.empty() &&
                        range.multiples_of.empty() && range.not_multiples_of.empty();
  return is_range && is_short(range.lower) && is_short(range.upper);
}

Words words_of(bool integers) { return integers ? Words::integers : Words::spellings; }

/// The format of a cell, if that is all; else empty.
std::string_view format_of(const StringCell& cell) {
  static constexpr std::string_view kPrefix = "format ";
  const bool bounded = cell.min > 0 || cell.max != kInfinite;
  if (bounded || cell.words || cell.contents.size() != 1) return {};
  const std::string_view id = cell.contents.front().id;
  return id.starts_with(kPrefix) ? id.substr(kPrefix.size()) : std::string_view();
}

std::string content_key(const StringCell& cell) {
  std::string key = std::to_string(cell.min) + "-" + std::to_string(cell.max) + ":";
  for (const Content& content : cell.contents) key += std::to_string(content.id.size()) + " " + content.id;
  if (!cell.words) return key;
  for (const std::string_view word : *cell.words) (key += "=" + std::to_string(word.size()) + " ") += word;
  return key;
}

bool is_host_name(std::string_view format) { return format == "hostname" || format == "idn-hostname"; }

/// The strings of a format, shared by all grammars.
AutomatonPtr format_strings(std::string_view name, const AutomatonPtr& language) {
  const auto make = [&] { return json_string(language, Escapes::minimal); };
  return shared_automaton("string " + std::string(name), make, string_lengths(name));
}

/// Length of the shortest spelling of listed strings; unknown if some are not listed.
std::optional<uint64_t> shortest_word(const std::vector<StringCell>& cells) {
  uint64_t shortest = kInfinite;
  for (const StringCell& cell : cells) {
    if (!cell.words) return std::nullopt;
    for (const std::string_view word : *cell.words) shortest = std::min(shortest, 2 + json::escaped_length(word));
  }
  return shortest;
}

/// Conservative test: false only if that is obvious, as for short patterns.
bool has_words_beyond(const AutomatonPtr& content, uint64_t max) {
  constexpr size_t kBudget = 64, kShort = 32;
  if (max > kShort) return true;
  try {
    return length_oracle(content, kBudget)->any_between(content->start(), max + 1, kInfinite);
  } catch (const ResourceLimit&) {
    return true;
  }
}

}  // namespace

void ScalarRules::add(const Cells& cells, std::vector<RuleId>& alternatives) {
  add_literals(cells, alternatives);
  add_numbers(cells.numbers, alternatives);
  add_strings(cells.strings, alternatives);
}

RuleId ScalarRules::regular(AutomatonPtr automaton, Words words, std::optional<uint64_t> shortest) {
  return grammar_.add(std::make_unique<AutomatonRule>(std::move(automaton), words, shortest));
}

template <class Make>
RuleId ScalarRules::shared(const std::string& key, const Make& make, Words words) {
  const auto [it, added] = shared_.try_emplace(key, 0);
  if (added) it->second = regular(make(), words);
  return it->second;
}

template <class Make>
RuleId ScalarRules::common(const std::string& key, const Make& make, Words words) {
  constexpr uint64_t kFarthest = 8;  // of literals and of numbers in any range
  return shared(key, [&] { return shared_automaton(key, make, {.farthest = kFarthest}); }, words);
}

RuleId ScalarRules::format(std::string_view name, const AutomatonPtr& language) {
  if (is_host_name(name)) return host_name(name == "idn-hostname");
  return shared("string " + std::string(name), [&] { return format_strings(name, language); });
}

void ScalarRules::add_literals(const Cells& cells, std::vector<RuleId>& out) {
  const int key = cells.null | cells.booleans[0] << 1 | cells.booleans[1] << 2;
  if (!key) return;
  const auto make = [&] {
    std::vector<std::string_view> words;
    if (cells.null) words.push_back("null");
    if (cells.booleans[0]) words.push_back("false");
    if (cells.booleans[1]) words.push_back("true");
    return literal_set(std::move(words));
  };
  out.push_back(common("literal " + std::to_string(key), make));
}

void ScalarRules::add_numbers(const std::vector<NumberCell>& cells, std::vector<RuleId>& out) {
  if (cells.empty()) return;
  const auto plain = [](const NumberCell& cell) {
    return cell == NumberCell{.range = {.integer = cell.range.integer,
                                        .max_digits_with_point = cell.range.max_digits_with_point}};
  };
  static const NumberRange kAll[] = {{}, {.integer = true}, {.integer = true, .max_digits_with_point = 0}};
  static constexpr const char* kKeys[] = {"number", "integer", "integer without fraction"};
  for (size_t i = 0; i < std::size(kAll); ++i) {
    const NumberRange& range = kAll[i];
    if (std::ranges::none_of(cells, [&](const NumberCell& cell) { return plain(cell) && cell.range == range; }))
      continue;
    out.push_back(common(kKeys[i], [&] { return number_language(range); }, words_of(range.integer)));
    if (!range.integer) return;
  }
  std::vector<NumberCell> others;
  std::ranges::remove_copy_if(cells, std::back_inserter(others), plain);
  if (others.empty()) return;
  const bool integers = std::ranges::all_of(others, integers_only);
  std::string key = "numbers ";
  for (const NumberCell& cell : others) key += number_key(cell);
  const auto make = [&] {
    std::vector<AutomatonPtr> parts;
    for (const NumberCell& cell : others) {
      if (!cell.values) parts.push_back(numbers(cell));
      for (const Decimal& value : cell.values.value_or(std::vector<Decimal>()))
        parts.push_back(number_literal(value, cell.range.max_digits_with_point));
    }
    return unite(std::move(parts));
  };
  if (std::ranges::any_of(others, [](const NumberCell& cell) { return !is_short_range(cell); })) {
    out.push_back(shared(key, make, words_of(integers)));
    return;
  }
  // Many schemas have the same bounds.
  static SharedAutomata ranges(kMaxRanges);
  out.push_back(shared(key, [&] { return ranges.get(key, make, {.farthest = kFarthestInRange}); }, words_of(integers)));
}

void ScalarRules::add_strings(const std::vector<StringCell>& cells, std::vector<RuleId>& out) {
  if (std::any_of(cells.begin(), cells.end(), [](const StringCell& cell) { return cell.any(); })) {
    out.push_back(free_string(0, kInfinite));
    return;
  }
  std::vector<AutomatonPtr> contents;
  std::string key;
  const auto in_pattern = [](const StringCell& cell) { return cell.words || !cell.contents.empty(); };
  const bool single = std::ranges::count_if(cells, in_pattern) == 1;
  for (const StringCell& cell : cells) {
    if (!in_pattern(cell)) {
      out.push_back(free_string(cell.min, cell.max));
    } else if (!cell.words && cell.contents.size() == 1 && cell.contents.front().source) {
      out.push_back(verbatim_string(cell.contents.front().source, cell.min, cell.max));
    } else if (single && !cell.words && cell.max != kInfinite) {
      out.push_back(bounded_string(cell));
    } else {
      contents.push_back(Normaliser::content(cell));
      key += content_key(cell);
    }
  }
  if (contents.empty()) return;
  if (const std::string_view name = cells.size() == 1 ? format_of(cells.front()) : ""; !name.empty()) {
    out.push_back(format(name, contents.front()));
    return;
  }
  const auto [it, added] = shared_.try_emplace("string " + key, 0);
  if (added) {
    const AutomatonPtr content = contents.size() == 1 ? contents[0] : unite(contents);
    it->second = regular(json_string(content, Escapes::minimal), Words::values, shortest_word(cells));
  }
  out.push_back(it->second);
}

RuleId ScalarRules::bounded_string(const StringCell& cell) {
  const auto [it, added] = shared_.try_emplace("string " + content_key(cell), 0);
  if (!added) return it->second;
  StringCell longer = cell;
  longer.max = kInfinite;
  const AutomatonPtr content = Normaliser::content(longer);
  const std::string_view name = format_of(longer);
  const AutomatonPtr strings =
      name.empty() || is_host_name(name) ? json_string(content, Escapes::minimal) : format_strings(name, content);
  if (has_words_beyond(content, cell.max)) {
    it->second = grammar_.add(std::make_unique<json::BoundedStringRule>(strings, cell.max));
  } else {
    it->second = regular(strings);
  }
  return it->second;
}

RuleId ScalarRules::host_name(bool international) {
  const std::string key = international ? "string idn-hostname" : "string hostname";
  const auto [it, added] = shared_.try_emplace(key, 0);
  if (!added) return it->second;
  AutomatonPtr names = shared_automaton(key, [&] { return encoded_host_names(international); });
  return it->second = grammar_.add(std::make_unique<json::HostNameRule>(std::move(names)));
}

RuleId ScalarRules::free_string(uint64_t min, uint64_t max) {
  const auto [it, added] = free_strings_.try_emplace({min, max}, 0);
  if (added) it->second = grammar_.add(std::make_unique<json::StringRule>(min, max));
  return it->second;
}

RuleId ScalarRules::verbatim_string(const json::SourceTextPtr& source, uint64_t min, uint64_t max) {
  const auto [it, added] = verbatim_strings_.try_emplace({source, min, max}, 0);
  if (added) it->second = grammar_.add(std::make_unique<json::VerbatimRule>(source, min, max));
  return it->second;
}

}  // namespace constrain::schema
