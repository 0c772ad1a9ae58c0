#include "engine/free_text.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "engine/utf8.h"

namespace constrain {

CharacterClass CharacterClass::plain() {
  CharacterClass out{{}, true};
  for (uint8_t byte = 0x20; byte < 0x80; ++byte) {
    if (byte != '"' && byte != '\\') out.ascii.add(byte);
  }
  return out;
}

int CharacterClass::count() const {
  int sum = beyond_ascii ? 128 : 0;
  for (const uint64_t word : ascii.words) sum += std::popcount(word);
  return sum;
}

const FreeTextFinder::Beyond& FreeTextFinder::beyond(State state) {
  if (const auto known = beyond_.find(state); known != beyond_.end()) return known->second;
  struct Place {
    Utf8State utf8;
    State state;
    bool operator==(const Place&) const = default;
  };
  Beyond found{true, {}};
  std::vector<Place> pending{{Utf8State::boundary, state}};
  for (size_t i = 0; i < pending.size() && found.all; ++i) {
    const Place at = pending[i];
    const StateRow& row = row_(at.state);
    for (int byte = 0x80; byte < 256; ++byte) {
      const Utf8State utf8 = next_utf8(at.utf8, static_cast<uint8_t>(byte));
      if (utf8 == Utf8State::malformed) continue;
      const State to = row[byte];
      if (to == kDead) {
        found.all = false;
        break;
      }
      if (utf8 == Utf8State::boundary) {
        if (std::find(found.targets.begin(), found.targets.end(), to) == found.targets.end()) {
          found.targets.push_back(to);
        }
      } else if (const Place next{utf8, to}; std::find(pending.begin(), pending.end(), next) == pending.end()) {
        pending.push_back(next);
      }
    }
    if (pending.size() + found.targets.size() > kMaxStates) found.all = false;
  }
  return beyond_[state] = std::move(found);
}

FreeText FreeTextFinder::find(State start, const std::function<bool(State)>& live) {
  FreeText found;
  const auto usable = [&](State state) { return state != kDead && live(state); };
  {
    const StateRow& row = row_(start);
    const CharacterClass plain = CharacterClass::plain();
    int count = 0;
    for (int byte = plain.ascii.next(0); byte >= 0; byte = plain.ascii.next(byte + 1)) {
      if (usable(row[byte])) found.characters.ascii.add(static_cast<uint8_t>(byte)), ++count;
    }
    if (count < kMinCharacters) return {};
    found.characters.beyond_ascii = beyond(start).all && std::ranges::all_of(beyond(start).targets, live);
  }
  std::unordered_set<State> met{start};
  std::vector<State> layer{start}, next;
  bool chain = true;  // one state after every number of characters
  while (!layer.empty() && found.room <= kHorizon && met.size() <= kMaxStates) {
    next.clear();
    bool some = false, every = true;
    const auto step = [&](State to) {
      if (!usable(to)) {
        every = false;
        return;
      }
      some = true;
      if (met.insert(to).second) {
        next.push_back(to);
      } else {
        chain = false;
      }
    };
    for (const State state : layer) {
      const StateRow& row = row_(state);
      State previous = kDead;
      for (int byte = 0; byte < 256; ++byte) {
        if (found.characters.ascii.has(static_cast<uint8_t>(byte))) {
          if (row[byte] == previous && previous != kDead) continue;
          previous = row[byte];
          if (previous == kDead || std::find(next.begin(), next.end(), previous) == next.end()) step(previous);
        } else if (row[byte] != kDead && !(found.characters.beyond_ascii && byte >= 0x80)) {
          found.leaving.add(static_cast<uint8_t>(byte));
        }
      }
      if (!found.characters.beyond_ascii) continue;
      if (!beyond(state).all) {
        every = false;
        some |= std::any_of(row.begin() + 0x80, row.end(), [](State to) { return to != kDead; });
      }
      for (const State to : beyond(state).targets) {
        if (std::find(next.begin(), next.end(), to) == next.end()) step(to);
      }
    }
    chain &= next.size() <= 1;
    if (!every) {
      found.exact = chain && !some;
      return found;
    }
    ++found.room;
    layer.swap(next);
  }
  if (layer.empty()) found.room = FreeText::kUnbounded;
  return found;
}

}  // namespace constrain
