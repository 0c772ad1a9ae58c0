#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/automata/lazy.h"
#include "engine/base/errors.h"
#include "engine/base/interner.h"
#include "engine/text/utf8.h"

namespace constrain {

namespace {

struct ShortEscape {
  char letter;
  char32_t scalar;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'b', '\b'}, {'f', '\f'},
                                         {'n', '\n'}, {'r', '\r'},  {'t', '\t'}, {'/', '/'}};

bool has_short_escape(char32_t scalar) {
  return std::ranges::any_of(kShortEscapes, [&](const ShortEscape& escape) { return escape.scalar == scalar; });
}

/// Tests whether `automaton` accepts some scalar value between `first` and `last` from `state`.
class ScalarProbe {
 public:
  ScalarProbe(Automaton& automaton, State state, char32_t first, char32_t last) : automaton_(automaton), from_(state) {
    static constexpr char32_t kEnds[] = {0x7F, 0x7FF, 0xFFFF, kLastScalar};
    for (char32_t end : kEnds) {
      if (first > last || found_) return;
      const char32_t stop = std::min(last, end);
      if (first <= end) {
        try_range(encode_utf8(first), encode_utf8(stop));
        first = stop + 1;
      }
    }
  }

  bool found() const { return found_; }

 private:
  /// `first` and `last` have the same number of bytes.
  void try_range(const Utf8& first, const Utf8& last) { found_ = search(from_, first, last, 0, true, true); }

  /// All states are live, so every live byte inside the edges of the range leads to a scalar within it.
  bool search(State state, const Utf8& first, const Utf8& last, size_t depth, bool at_first, bool at_last) {
    if (depth == first.size) return true;
    const uint32_t low = at_first ? first.bytes[depth] : 0x80, high = at_last ? last.bytes[depth] : 0xBF;
    for (uint32_t byte = low; byte <= high; ++byte) {
      const State next = automaton_.step(state, static_cast<uint8_t>(byte));
      if (next == kDead) continue;
      const bool still_first = at_first && byte == low, still_last = at_last && byte == high;
      if (!still_first && !still_last) return true;
      if (search(next, first, last, depth + 1, still_first, still_last)) return true;
    }
    return false;
  }

  Automaton& automaton_;
  State from_;
  bool found_ = false;
};

/// Hexadecimal digits so far: a 1 and then the digits, so that leading zeros count.
struct HexPrefix {
  uint32_t code = 1;

  uint32_t digits() const { return (std::bit_width(code) - 1) / 4; }
  HexPrefix then(uint32_t digit) const { return {code << 4 | digit}; }
  char32_t first() const { return (code << (16 - 4 * digits())) & 0xFFFF; }
  char32_t last() const { return first() | ((1u << (16 - 4 * digits())) - 1); }
};

class JsonString : public LazyAutomaton {
 public:
  JsonString(AutomatonPtr content, Escapes escapes) : content_(std::move(content)), escapes_(escapes) {}

  State start() override {
    const State content = content_->start();
    return content == kDead ? kDead : name({content, kOpening});
  }

  bool accepting(State state) override { return place(state).phase == kClosed; }

  /// Each word of the content has at least one spelling.
  std::optional<uint64_t> least_words(State state) override {
    const Place at = place(state);
    return at.phase == kOpening || at.phase == kBody ? content_->least_words(at.content) : std::nullopt;
  }

  /// Dijkstra's algorithm on the content, with the escaped lengths of bytes as weights.
  std::optional<uint32_t> shortest(State state, size_t budget) override {
    const Place at = place(state);
    if (at.phase == kClosed) return 0;
    if (at.phase != kOpening && at.phase != kBody) return std::nullopt;
    const std::vector<Part> parts = content_->parts(at.content);
    std::array<std::vector<std::pair<size_t, State>>, kLongestSpelling + 1> levels;  // by length, modulo its size
    std::vector<std::vector<bool>> settled(parts.size());                            // by state of the part
    size_t count = 0;
    for (size_t part = 0; part < parts.size(); ++part) levels[0].emplace_back(part, parts[part].state);
    for (uint32_t length = 0;; ++length) {
      auto& level = levels[length % levels.size()];
      for (const auto [part, content] : level) {
        if (content >= settled[part].size()) settled[part].resize(content + 1);
        if (settled[part][content]) continue;
        settled[part][content] = true;
        if (++count > budget) throw ResourceLimit("search_states", budget, "while measuring a language");
        Automaton& automaton = *parts[part].automaton;
        if (automaton.accepting(content)) return length + 1 + (at.phase == kOpening);
        for_each_range(automaton.row(content), [&, part = part](uint32_t first, uint32_t last, State to) {
          if (to == kDead) return;
          uint32_t least = kLongestSpelling;
          for (uint32_t byte = first; byte <= last && least > 1; ++byte) least = std::min(least, escaped_bytes(byte));
          levels[(length + least) % levels.size()].emplace_back(part, to);
        });
      }
      level.clear();
    }
  }

 private:
  // `\ud83d\ude00` passes kBody, kEscape, kHex, kLowEscape, kLowU, kLowHex and then kBody again.
  enum Phase : uint32_t { kOpening, kBody, kEscape, kHex, kLowEscape, kLowU, kLowHex, kClosed };

  struct Place {
    State content;
    uint32_t phase;
    uint32_t hex = HexPrefix{}.code;
    uint32_t high = 0;  // the high surrogate, once it is complete
  };

  static constexpr uint32_t kLongestSpelling = 6;  // \u001f

  static uint32_t escaped_bytes(uint32_t byte) {
    if (byte != '/' && has_short_escape(byte)) return 2;
    return byte < 0x20 ? kLongestSpelling : 1;
  }

  State name(Place place) { return states_.intern(std::array{place.content, place.phase, place.hex, place.high}); }

  Place place(State state) const {
    const auto key = states_[state];
    return {key[0], key[1], key[2], key[3]};
  }

  void fill_row(State state, Transitions& row) override {
    const Place at = place(state);
    switch (at.phase) {
      case kOpening:
        row.set('"', name({at.content, kBody}));
        break;
      case kBody:
        fill_body(at.content, row);
        break;
      case kEscape:
        fill_escape(at.content, row);
        break;
      case kLowEscape:
        row.set('\\', name({at.content, kLowU, at.hex, at.high}));
        break;
      case kLowU:
        row.set('u', name({at.content, kLowHex, at.hex, at.high}));
        break;
      case kHex:
      case kLowHex:
        fill_hex(at, row);
        break;
      default:
        break;
    }
  }

  void fill_body(State content, Transitions& row) {
    for_each_range(content_->row(content), [&](int first, int last, State to) {
      if (last < 0x20 || to == kDead) return;
      row.set(std::max(first, 0x20), last, name({to, kBody}));
    });
    row.set('"', content_->accepting(content) ? name({content, kClosed}) : kDead);
    row.set('\\', escape_possible(content) ? name({content, kEscape}) : kDead);
  }

  bool escape_possible(State content) {
    const bool short_possible = std::ranges::any_of(
        kShortEscapes, [&](const ShortEscape& escape) { return after_short_escape(content, escape) != kDead; });
    return short_possible || unit_possible(content, HexPrefix{});
  }

  State after_short_escape(State content, const ShortEscape& escape) {
    if (escape.letter == '/' && escapes_ == Escapes::minimal) return kDead;
    return content_->step(content, static_cast<uint8_t>(escape.scalar));
  }

  void fill_escape(State content, Transitions& row) {
    for (const ShortEscape& escape : kShortEscapes) {
      const State target = after_short_escape(content, escape);
      if (target != kDead) row.set(escape.letter, name({target, kBody}));
    }
    if (unit_possible(content, HexPrefix{})) row.set('u', name({content, kHex}));
  }

  void fill_hex(const Place& at, Transitions& row) {
    for (uint32_t digit = 0; digit < 16; ++digit) {
      const HexPrefix hex = HexPrefix{at.hex}.then(digit);
      const State target = at.phase == kHex ? after_unit(at.content, hex) : after_low_unit(at, hex);
      row.set("0123456789abcdef"[digit], target);
      if (digit > 9 && escapes_ == Escapes::full) row.set("ABCDEF"[digit - 10], target);
    }
  }

  State after_unit(State content, HexPrefix hex) {
    if (!unit_possible(content, hex)) return kDead;
    if (hex.digits() < 4) return name({content, kHex, hex.code});
    const char32_t unit = hex.first();
    if (unit < kFirstSurrogate || unit > kLastSurrogate) return after_scalar(content, unit);
    return name({content, kLowEscape, HexPrefix{}.code, unit});
  }

  State after_low_unit(const Place& at, HexPrefix hex) {
    const char32_t first = std::max(hex.first(), kFirstLowSurrogate), last = std::min(hex.last(), kLastSurrogate);
    if (first > last || !can_read(at.content, pair(at.high, first), pair(at.high, last))) return kDead;
    if (hex.digits() < 4) return name({at.content, kLowHex, hex.code, at.high});
    return after_scalar(at.content, pair(at.high, first));
  }

  State after_scalar(State content, char32_t scalar) {
    const Utf8 encoded = encode_utf8(scalar);
    for (size_t i = 0; i < encoded.size; ++i) content = content_->step(content, encoded.bytes[i]);
    return name({content, kBody});
  }

  /// Tests whether the content can continue with a scalar value whose escape begins with these digits.
  bool unit_possible(State content, HexPrefix hex) {
    const char32_t first = hex.first(), last = hex.last();
    if (escapes_ == Escapes::minimal) return control_possible(content, first, last);
    if (can_read(content, first, std::min<char32_t>(last, kFirstSurrogate - 1))) return true;
    if (can_read(content, std::max<char32_t>(first, kLastSurrogate + 1), last)) return true;
    const char32_t first_high = std::max(first, kFirstSurrogate),
                   last_high = std::min<char32_t>(last, kFirstLowSurrogate - 1);
    return first_high <= last_high &&
           can_read(content, pair(first_high, kFirstLowSurrogate), pair(last_high, kLastSurrogate));
  }

  bool control_possible(State content, char32_t first, char32_t last) {
    const StateRow& row = content_->row(content);
    for (size_t range = 0; range < row.ranges() && row.first(range) < 0x20; ++range) {
      if (row.target(range) == kDead) continue;
      const auto end = std::min<char32_t>({last, row.last(range), 0x1F});
      for (char32_t scalar = std::max<char32_t>(first, row.first(range)); scalar <= end; ++scalar) {
        if (!has_short_escape(scalar)) return true;
      }
    }
    return false;
  }

  bool can_read(State content, char32_t first, char32_t last) {
    return ScalarProbe(*content_, content, first, last).found();
  }

  static char32_t pair(char32_t high, char32_t low) {
    return 0x10000 + ((high - kFirstSurrogate) << 10) + (low - kFirstLowSurrogate);
  }

  AutomatonPtr content_;
  Escapes escapes_;
  SequenceInterner states_;
};

}  // namespace

AutomatonPtr json_string(AutomatonPtr content, Escapes escapes) {
  return std::make_shared<JsonString>(std::move(content), escapes);
}

}  // namespace constrain
