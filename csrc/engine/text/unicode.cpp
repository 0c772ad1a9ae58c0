#include "engine/text/unicode.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "engine/text/packed_ranges.h"

namespace constrain {

namespace {

struct SetEntry {
  std::string_view name;
  uint32_t offset, size;
};

#include "engine/text/unicode_tables.inc"

struct Alias {
  std::string_view name, categories;  // two-letter categories, end to end
};

constexpr Alias kCategoryAliases[] = {
    {"Any", "CcCfCnCoLlLmLoLtLuMcMeMnNdNlNoPcPdPePfPiPoPsScSkSmSoZlZpZs"},
    {"Assigned", "CcCfCoLlLmLoLtLuMcMeMnNdNlNoPcPdPePfPiPoPsScSkSmSoZlZpZs"},
    {"C", "CcCfCnCo"},
    {"Other", "CcCfCnCo"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Unassigned", "Cn"},
    {"Private_Use", "Co"},
    {"L", "LlLmLoLtLu"},
    {"Letter", "LlLmLoLtLu"},
    {"LC", "LlLtLu"},
    {"Cased_Letter", "LlLtLu"},
    {"Lowercase_Letter", "Ll"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Titlecase_Letter", "Lt"},
    {"Uppercase_Letter", "Lu"},
    {"M", "McMeMn"},
    {"Mark", "McMeMn"},
    {"Combining_Mark", "McMeMn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Nonspacing_Mark", "Mn"},
    {"N", "NdNlNo"},
    {"Number", "NdNlNo"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"P", "PcPdPePfPiPoPs"},
    {"Punctuation", "PcPdPePfPiPoPs"},
    {"punct", "PcPdPePfPiPoPs"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Close_Punctuation", "Pe"},
    {"Final_Punctuation", "Pf"},
    {"Initial_Punctuation", "Pi"},
    {"Other_Punctuation", "Po"},
    {"Open_Punctuation", "Ps"},
    {"S", "ScSkSmSo"},
    {"Symbol", "ScSkSmSo"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Math_Symbol", "Sm"},
    {"Other_Symbol", "So"},
    {"Z", "ZlZpZs"},
    {"Separator", "ZlZpZs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Space_Separator", "Zs"},
};

std::optional<CharSet> stored_set(std::string_view name) {
  const auto entry = std::ranges::find(kSetEntries, name, &SetEntry::name);
  if (entry == std::end(kSetEntries)) return std::nullopt;
  std::span<const uint8_t> data(kSetData + entry->offset, entry->size);
  std::vector<CharSet::Range> ranges;
  for (char32_t end = 0; !data.empty(); end = ranges.back().last + 1) ranges.push_back(read_range(data, end));
  return CharSet(std::move(ranges));
}

bool is_category(std::string_view name) { return name.size() == 2; }

std::optional<CharSet> category_set(std::string_view name) {
  if (is_category(name) && name != "LC") return stored_set(name);
  const auto alias = std::ranges::find(kCategoryAliases, name, &Alias::name);
  if (alias == std::end(kCategoryAliases)) return std::nullopt;
  CharSet set;
  for (size_t i = 0; i < alias->categories.size(); i += 2) set = set | *stored_set(alias->categories.substr(i, 2));
  return set;
}

}  // namespace

std::optional<CharSet> unicode_set(std::string_view property, std::string_view value) {
  if (property == "gc" || property == "General_Category") return category_set(value);
  if (property == "sc" || property == "Script") return is_category(value) ? std::nullopt : stored_set(value);
  if (!property.empty()) return std::nullopt;
  if (value == "ASCII") return CharSet{{0, 0x7F}};
  if (auto set = category_set(value)) return set;
  return is_category(value) ? std::nullopt : stored_set(value);
}

CharSet fold_case(const CharSet& set, CaseRule rule) {
  const std::span<const uint32_t> table =
      rule == CaseRule::python ? std::span<const uint32_t>(kPythonCase) : std::span<const uint32_t>(kEcmaCase);
  std::vector<CharSet::Range> ranges = set.ranges();
  for (size_t i = 0; i < table.size(); i += table[i] + 1) {
    const auto orbit = table.subspan(i + 1, table[i]);
    if (!std::ranges::any_of(orbit, [&](uint32_t scalar) { return set.contains(scalar); })) continue;
    for (uint32_t scalar : orbit) ranges.push_back({scalar, scalar});
  }
  return CharSet(std::move(ranges));
}

}  // namespace constrain
