#include "engine/text/similar_name.h"

#include <algorithm>
#include <string>

namespace constrain {
namespace {

/// True if one character is missing, superfluous or different, or two neighbours are swapped.
bool one_edit_apart(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  size_t at = 0;
  while (at < a.size() && a[at] == b[at]) ++at;
  if (a.size() < b.size()) return a.substr(at) == b.substr(at + 1);
  if (at == a.size()) return false;
  const bool swapped = at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at];
  return a.substr(at + 1) == b.substr(at + 1) || (swapped && a.substr(at + 2) == b.substr(at + 2));
}

/// A common form of maxLength, MaxLength, max_length and max-length.
std::string without_case(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '_' && c != '-') letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

}  // namespace

std::string_view similar_name(std::string_view name, std::span<const std::string_view> known) {
  // Shorter names have too many neighbours with other meanings.
  constexpr size_t kShortest = 4;
  const std::string wanted = without_case(name);
  if (wanted.size() < kShortest) return {};
  const auto is_similar = [&](std::string_view one) {
    const std::string other = without_case(one);
    return other == wanted || one_edit_apart(other, wanted);
  };
  const auto found = std::ranges::find_if(known, is_similar);
  return found == known.end() ? std::string_view() : *found;
}

}  // namespace constrain
