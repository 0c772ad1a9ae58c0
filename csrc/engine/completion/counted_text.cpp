#include "engine/completion/counted_text.h"

#include <algorithm>
#include <tuple>

namespace constrain {

std::optional<CountedText> CountedTextFinder::from(const StackTop& top) {
  CountedText text;
  std::optional<StackTop> next;
  std::tie(next, text.characters.ascii) = usual_step(top);
  if (text.characters.ascii.count() < kMinCharacters) return std::nullopt;
  text.characters.beyond_ascii = beyond_ascii_leads(top, *next);
  StackTop at = top;
  const auto first = static_cast<uint8_t>(text.characters.ascii.next(0));
  while (next && !text.endless && text.after.size() < kMost) {
    text.after.push_back(*next);
    text.leaving.add(possible_bytes(at));
    text.endless = at == *next;
    at = *next;
    next = step(at, first);
    if (next && !all_lead(at, text.characters, *next)) next.reset();
  }
  text.cut = !text.endless && goes_on(at, text.characters.ascii);
  text.leaving.add(possible_bytes(at));
  const ByteSet beyond = text.characters.beyond_ascii ? ByteSet::range(0x80, 0xFF) : ByteSet();
  text.leaving = text.leaving & ~text.characters.ascii & ~beyond;
  return text;
}

/// The successor on a byte, if there is one only.
std::optional<StackTop> CountedTextFinder::step(const StackTop& top, uint8_t byte) {
  tops_.clear();
  stepper_.step(top, byte, tops_);
  stepper_.forget(tops_);
  return tops_.size() == 1 ? std::optional(tops_.front()) : std::nullopt;
}

/// The successor on most ASCII characters, and these.
std::pair<StackTop, ByteSet> CountedTextFinder::usual_step(const StackTop& top) {
  std::vector<std::pair<StackTop, ByteSet>> found{{top, {}}};
  for (int byte = 0; byte < 0x80; ++byte) {
    const auto next = step(top, static_cast<uint8_t>(byte));
    if (!next) continue;
    auto same = std::ranges::find(found, *next, &std::pair<StackTop, ByteSet>::first);
    if (same == found.end()) same = found.insert(same, {*next, {}});
    same->second.add(static_cast<uint8_t>(byte));
  }
  return *std::ranges::max_element(found, {}, [](const auto& one) { return one.second.count(); });
}

bool CountedTextFinder::all_lead(const StackTop& top, const CharacterClass& characters, const StackTop& to) {
  for (int byte = characters.ascii.next(0); byte >= 0; byte = characters.ascii.next(byte + 1)) {
    if (step(top, static_cast<uint8_t>(byte)) != to) return false;
  }
  return !characters.beyond_ascii || beyond_ascii_leads(top, to);
}

/// True if every character beyond ASCII leads to one place.
bool CountedTextFinder::beyond_ascii_leads(const StackTop& top, const StackTop& to) {
  std::vector<std::pair<Utf8State, StackTop>> places{{Utf8State::boundary, top}};
  for (size_t i = 0; i < places.size() && places.size() <= kMaxPlaces; ++i) {
    for (const Utf8Range& range : utf8_ranges(places[i].first)) {
      for (int byte = std::max<int>(range.first, 0x80); byte <= range.last; ++byte) {
        const auto next = step(places[i].second, static_cast<uint8_t>(byte));
        if (!next || (range.to == Utf8State::boundary && *next != to)) return false;
        const std::pair place{range.to, *next};
        if (range.to != Utf8State::boundary && std::ranges::find(places, place) == places.end())
          places.push_back(place);
      }
    }
  }
  return places.size() <= kMaxPlaces;
}

bool CountedTextFinder::goes_on(const StackTop& top, const ByteSet& bytes) {
  for (int byte = bytes.next(0); byte >= 0; byte = bytes.next(byte + 1)) {
    tops_.clear();
    stepper_.step(top, static_cast<uint8_t>(byte), tops_);
    if (!tops_.empty()) return true;
  }
  return false;
}

ByteSet CountedTextFinder::possible_bytes(const StackTop& top) const {
  const Row& row = grammar_.row(top.state);
  return row.accepting && top.parent ? ByteSet::all() : row.bytes;
}

}  // namespace constrain
