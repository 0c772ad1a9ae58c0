#include "engine/automata/wildcard_finder.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/text/utf8.h"

namespace constrain {

namespace {

/// Sorts ranges, and merges those that touch.
std::vector<CharacterClass::Range> merged(std::vector<CharacterClass::Range> ranges) {
  std::ranges::sort(ranges);
  std::vector<CharacterClass::Range> out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

/// First byte of a character beyond ASCII.
uint8_t first_byte(char32_t character) {
  if (character < 0x800) return static_cast<uint8_t>(0xC0 | character >> 6);
  return static_cast<uint8_t>(character < 0x10000 ? 0xE0 | character >> 12 : 0xF0 | character >> 18);
}

/// Bytes of characters beyond ASCII, without those of special tokens.
const ByteSet kBeyondAscii = ByteSet::range(0x80, 0xF4);

}  // namespace

/// Follows all characters beyond ASCII at once, byte by byte. Characters at the same place are followed together; only
/// the first few prefixes are stored, to name excluded characters: those that are refused and, if only `lasting` ones
/// are asked for, those after which few others may follow.
class WildcardFinder::BeyondSearch {
 public:
  BeyondSearch(const std::function<const StateRow&(State)>& row, bool lasting) : row_(row), lasting_(lasting) {}

  Beyond run(State start) {
    found_.most = true;
    least_ = lasting_ ? plain_bytes(start) / 2 : 0;
    std::vector<Place> level;
    level.reserve(kUsualPlaces), pending_.reserve(kUsualPlaces);
    pending_.push_back({.utf8 = Utf8State::boundary, .state = start, .count = 1});
    for (size_t done = 0; found_.most && !pending_.empty() && done < 4; ++done) {
      level.swap(pending_);
      pending_.clear();
      for (const Place& place : level) follow(place);
    }
    found_.excluded = merged(std::move(found_.excluded));
    found_.most &= found_.excluded.size() <= kMaxExcluded;
    return std::move(found_);
  }

 private:
  static constexpr size_t kRemembered = 8, kUsualPlaces = 8, kMaxPlaces = 512;

  struct Place {
    Utf8State utf8;
    State state;
    size_t count;                                      /// prefixes so far; more than kRemembered if not all are stored
    std::array<char32_t, kRemembered + 1> prefixes{};  // code point bits so far
  };

  void follow(const Place& place) {
    const StateRow& row = row_(place.state);
    for (const Utf8Range& range : utf8_ranges(place.utf8)) {
      const int last = range.last;
      for (int byte = std::max<int>(range.first, 0x80), end; byte <= last && found_.most; byte = end) {
        const size_t at = row.range_of(static_cast<uint8_t>(byte));
        end = std::min<int>(row.last(at), last) + 1;
        const State to = row.target(at);
        const bool whole = range.to == Utf8State::boundary;
        const bool known = whole && std::ranges::find(found_.targets, to) != found_.targets.end();
        if (to == kDead || (whole && !known && plain_bytes(to) < least_)) {
          exclude(place, range.to, byte, end);
        } else if (!whole) {
          enter(range.to, to, place, byte, end);
        } else if (!known) {
          found_.targets.push_back(to);
        }
      }
    }
  }

  int plain_bytes(State state) const {
    return lasting_ ? (row_(state).bytes() & CharacterClass::plain().ascii).count() : 0;
  }

  /// Code point bits that a byte contributes.
  static char32_t bits_of(int byte, const Place& place, Utf8State after) {
    return static_cast<char32_t>(place.utf8 == Utf8State::boundary ? byte & (0x3F >> missing_bytes(after))
                                                                   : byte & 0x3F);
  }

  void exclude(const Place& place, Utf8State after, int byte, int end) {
    for (; byte < end; ++byte) {
      found_.most &= place.count <= kRemembered && found_.excluded.size() < 64 * kMaxExcluded;
      if (!found_.most) return;
      for (const char32_t prefix : std::span(place.prefixes).first(place.count)) {
        found_.excluded.push_back(scalar_range(prefix << 6 | bits_of(byte, place, after), missing_bytes(after)));
      }
    }
  }

  void enter(Utf8State utf8, State state, const Place& from, int byte, int end) {
    auto it = std::ranges::find_if(pending_, [&](const Place& at) { return at.utf8 == utf8 && at.state == state; });
    if (it == pending_.end()) it = pending_.insert(it, {.utf8 = utf8, .state = state, .count = 0});
    found_.most &= pending_.size() <= kMaxPlaces;
    for (; byte < end; ++byte) {
      for (const char32_t prefix : std::span(from.prefixes).first(from.count)) {
        if (it->count > kRemembered) return;
        it->prefixes[it->count++] = prefix << 6 | bits_of(byte, from, utf8);
      }
    }
  }

  const std::function<const StateRow&(State)>& row_;
  bool lasting_;
  int least_ = 0;  // plain bytes that may follow a character
  Beyond found_;
  std::vector<Place> pending_;
};

const WildcardFinder::Beyond& WildcardFinder::beyond(State state) {
  std::unordered_map<State, Beyond>& cache = beyond_[lasting_];
  const auto cached = cache.find(state);
  return cached != cache.end() ? cached->second : cache[state] = BeyondSearch(row_, lasting_).run(state);
}

const WildcardFinder::Found& WildcardFinder::found(State start) {
  lasting_ = false;
  const auto cached = found_.find(start);
  return cached != found_.end() ? cached->second : found_[start] = find(start);
}

bool WildcardFinder::leads_back(State state) {
  const WildcardRegion& text = from(state);
  if (text.max_length != WildcardRegion::kUnbounded) return false;
  ByteSet back;  // bytes that lead back to the state
  for_each_range(row_(state), [&](uint8_t first, uint8_t last, State to) {
    if (to == state) back.add(first, last);
  });
  if (!(text.characters.ascii & ~back).empty()) return false;
  if (!text.characters.beyond_ascii) return true;
  return beyond(state).targets == std::vector{state} && beyond(state).excluded == text.characters.excluded;
}

bool WildcardFinder::is_loop(State state) {
  return leads_back(state) && (from(state).characters.beyond_ascii || !beyond(state).targets.empty());
}

WildcardFinder::Found WildcardFinder::find(State start) {
  const StateRow& row = row_(start);
  const ByteSet plain = CharacterClass::plain().ascii;
  CharacterClass characters;
  for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
    const ByteSet bytes = plain & ByteSet::range(first, last);
    if (!bytes.empty() && usable(to)) characters.ascii.add(bytes);
  });
  if (characters.count() < kMinCharacters) return {};
  characters.ascii = lasting(start, characters.ascii);
  Found best;
  search(start, characters, best);
  if (best.text.exact || best.text.max_length >= kEnough) return best;
  lasting_ = true;
  search(start, characters, best);
  return best;
}

/// Tries classes with the given ASCII characters and those beyond that may follow, and keeps the longest region.
void WildcardFinder::search(State start, CharacterClass characters, Found& best) {
  const std::vector<State>& targets = beyond(start).targets;
  characters.beyond_ascii =
      beyond(start).most && !targets.empty() && std::ranges::all_of(targets, [&](State to) { return usable(to); });
  if (characters.beyond_ascii) characters.excluded = beyond(start).excluded;
  for (int tries = 0; tries < kTries; ++tries) {
    if (characters.count() - (characters.beyond_ascii ? 128 : 0) < kMinCharacters) break;
    // Characters that some text of the class cannot continue with are excluded in the next try.
    CharacterClass missing;
    Found found = explore(start, characters, missing);
    if ((tries == 0 && !lasting_) || found.text.max_length > best.text.max_length) best = std::move(found);
    if (best.text.exact || best.text.max_length >= kEnough || missing == CharacterClass()) break;
    characters.ascii = characters.ascii & ~missing.ascii;
    characters.excluded.insert(characters.excluded.end(), missing.excluded.begin(), missing.excluded.end());
    characters.excluded = merged(std::move(characters.excluded));
    if (characters.excluded.size() > kMaxExcluded) characters.beyond_ascii = false, characters.excluded.clear();
  }
}

/// Keeps the bytes after which at least half of them may follow again, if these are enough.
ByteSet WildcardFinder::lasting(State start, const ByteSet& bytes) {
  const StateRow& row = row_(start);
  std::vector<State> targets;
  for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
    const bool some = !(bytes & ByteSet::range(first, last)).empty();
    if (some && std::ranges::find(targets, to) == targets.end()) targets.push_back(to);
  });
  const auto lasts = [&](State state) {
    return state == start || 2 * (bytes & row_(state).bytes()).count() >= bytes.count();
  };
  if (targets.size() == 1) return bytes;
  std::erase_if(targets, lasts);
  if (targets.empty()) return bytes;
  CharacterClass kept;
  for (int byte = bytes.next(0); byte >= 0; byte = bytes.next(byte + 1)) {
    const auto follow = static_cast<uint8_t>(byte);
    if (std::ranges::find(targets, row[follow]) == targets.end()) kept.ascii.add(follow);
  }
  return kept.count() >= kMinCharacters ? kept.ascii : bytes;
}

WildcardFinder::Found WildcardFinder::explore(State start, const CharacterClass& characters, CharacterClass& missing) {
  Found made;
  auto& [found, needs] = made;
  found.characters = characters;
  std::unordered_map<State, uint64_t> met{{start, 0}};  // by the shortest text to them
  std::vector<State> layer{start}, next;
  bool chain = true;  // true if each length leads to one state
  bool over = false;  // true if the frame may be over within the region
  ByteSet outside = ~characters.ascii;
  if (characters.beyond_ascii) outside = outside & ~kBeyondAscii;
  while (!layer.empty() && found.max_length <= kWildcardHorizon && met.size() <= kMaxStates) {
    next.clear();
    bool some = false, every = true;
    const auto step = [&](State to) {
      const uint64_t length = found.max_length + 1, needed = needs_of(to);
      if (needed == WildcardRegion::kUnbounded) {
        every = false;
        return;
      }
      some = true;
      over |= final_(to);
      const auto [first, fresh] = met.try_emplace(to, length);
      needs.add(first->second, length, needed);
      if (fresh) {
        next.push_back(to);
      } else {
        chain = false;
      }
    };
    for (const State state : layer) {
      const StateRow& row = row_(state);
      for_each_range(row, [&](uint8_t first, uint8_t last, State to) {
        const ByteSet bytes = ByteSet::range(first, last), within = bytes & characters.ascii;
        if (to != kDead) found.leaving.add(bytes & outside);
        if (within.empty()) return;
        if (!usable(to)) missing.ascii.add(within);
        if (to == kDead || std::ranges::find(next, to) == next.end()) step(to);
      });
      if (!found.characters.beyond_ascii) continue;
      if (!covers(characters, state, missing, found.leaving)) {
        every = false;
        some |= row.bytes().next(0x80) >= 0;
      }
      for (const State to : beyond(state).targets) {
        if (std::find(next.begin(), next.end(), to) == next.end()) step(to);
      }
    }
    chain &= next.size() <= 1;
    if (!every) {
      found.exact = chain && !some && !over;
      break;
    }
    ++found.max_length;
    layer.swap(next);
  }
  if (layer.empty()) found.max_length = WildcardRegion::kUnbounded;
  if (over) found.leaving.fill();
  return made;
}

void RegionNeeds::add(uint64_t first, uint64_t length, uint64_t needed) {
  if (first < length) again = std::min(again, first);
  if (after.size() <= length) after.resize(length + 1);
  after[length] = std::max(after[length], needed);
  most = std::max(most, needed);
}

uint64_t RegionNeeds::limit(uint64_t left) const {
  uint64_t limit = left;
  for (uint64_t length = 0; length < after.size() && length <= limit; ++length) {
    if (length >= again) limit = std::min(limit, left - std::min(left, after[length]));
    if (length <= limit && length + after[length] > left) return length - 1;
  }
  return limit;
}

/// True if all characters of the class beyond ASCII may follow. Adds the first bytes of others to `leaving`.
bool WildcardFinder::covers(const CharacterClass& characters, State state, CharacterClass& missing, ByteSet& leaving) {
  const Beyond& follows = beyond(state);
  if (!follows.most) return false;
  bool all = true;
  for (const CharacterClass::Range& range : follows.excluded) {
    if (characters.excludes(range)) continue;
    all = false;
    missing.excluded.push_back(range);
  }
  if (!lasting_ && follows.excluded == characters.excluded) return all;  // which refuses them
  for (const auto& [first, last] : characters.excluded) {
    leaving.add(first_byte(first), first_byte(last));
  }
  return all;
}

}  // namespace constrain
