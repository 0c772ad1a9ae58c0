// Regular languages as lazily determinised automata over bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/automata/state_row.h"
#include "engine/base/byte_set.h"
#include "engine/base/lengths.h"

namespace constrain {

/// A deterministic automaton whose states are created on first use.
///
/// Only live states exist: `start` and all successors can reach an accepting state, so that following an automaton
/// never runs into a dead end. The grammar that owns it holds a lock while it grows.
class Automaton {
 public:
  virtual ~Automaton() = default;

  /// Start state, or `kDead` if the language is empty.
  virtual State start() = 0;

  /// All transitions of a state; the reference stays valid for the life of the automaton.
  virtual const StateRow& row(State state) = 0;

  virtual bool accepting(State state) = 0;

  /// `matches`, where possible without making rows, which a single text does not repay.
  virtual bool contains(std::string_view text);

  /// A state of an automaton.
  struct Part {
    Automaton* automaton;
    State state;
  };

  /// States from which together the words from `state` are accepted: of the parts of a union, so that searches need not
  /// combine them.
  virtual std::vector<Part> parts(State state) { return {{this, state}}; }

  /// Bytes of a shortest accepted word from a state, if the automaton knows a faster way than search.
  virtual std::optional<uint32_t> shortest(State, size_t /*budget*/) { return std::nullopt; }

  /// Most bytes of a shortest accepted word, over all states; kInfinite if that is not known.
  virtual uint64_t farthest() const { return kInfinite; }

  /// Fewest words that are accepted from a state, if the automaton knows without a search.
  virtual std::optional<uint64_t> least_words(State) { return std::nullopt; }

  /// Identifies automata that grammars share; 0 for others, which are not thread-safe.
  virtual uint64_t shared_id() const { return 0; }

  State step(State state, uint8_t byte) { return state == kDead ? kDead : row(state)[byte]; }
};

using AutomatonPtr = std::shared_ptr<Automaton>;

/// True if `text` as a whole is in the language.
bool matches(Automaton& automaton, std::string_view text);

/// Bytes on which some accepted word may continue from `state`; none for `kDead`.
ByteSet live_bytes(Automaton& automaton, State state);

// ---- Basic languages. Text is UTF-8; "any text" means every well-formed UTF-8 string.

AutomatonPtr empty_language();
AutomatonPtr any_text();
AutomatonPtr literal_set(std::vector<std::string_view> words);

// ---- Boolean operations. Complements are relative to any text.

AutomatonPtr intersect(AutomatonPtr a, AutomatonPtr b);
AutomatonPtr unite(std::vector<AutomatonPtr> parts);
AutomatonPtr complement(AutomatonPtr a);
AutomatonPtr subtract(AutomatonPtr a, AutomatonPtr b);
AutomatonPtr concatenate(AutomatonPtr a, AutomatonPtr b);

// ---- Questions about a language. Searches are bounded by `budget` states and throw ResourceLimit beyond it.

inline constexpr size_t kSearchBudget = 200'000;

bool is_empty(Automaton& automaton);

/// States on the path of a shortest accepted word, from `state` on.
std::vector<State> shortest_way(Automaton& automaton, State state, size_t budget = kSearchBudget);

/// Bytes of a shortest accepted word from `state`.
uint32_t shortest_length(Automaton& automaton, State state, size_t budget = kSearchBudget);

/// Number of accepted words from `state`, saturating at `cap`; `cap` if there are infinitely many.
uint64_t count_words(Automaton& automaton, State state, uint64_t cap, size_t budget = kSearchBudget);

/// Counts words from many states of one automaton, depth first; caches its results.
class WordCounter {
 public:
  /// Only words without the byte `excluded` count, unless it is 0.
  WordCounter(AutomatonPtr automaton, uint64_t cap, size_t budget = kSearchBudget, char excluded = '\0')
      : automaton_(std::move(automaton)), cap_(cap), budget_(budget), excluded_(static_cast<uint8_t>(excluded)) {}

  /// Counts as `count_words`; 0 for kDead.
  uint64_t count(State state);

 private:
  static constexpr uint64_t kOnPath = ~uint64_t{0};

  struct Frame {
    State state;
    size_t next_range;
    uint64_t words;
  };

  uint64_t add(uint64_t a, uint64_t b) const { return a >= cap_ - (b < cap_ ? b : cap_) ? cap_ : a + b; }
  bool are_many(State root);
  void enter(State state);
  void finish();

  AutomatonPtr automaton_;
  uint64_t cap_;
  size_t budget_;
  uint8_t excluded_;
  std::vector<Frame> path_;
  std::unordered_map<State, uint64_t> counts_;
};

/// Lists all accepted words in byte order. Throws ResourceLimit if there are more than `cap`.
std::vector<std::string> enumerate_words(Automaton& automaton, size_t cap);

/// True if no text is in both languages.
bool disjoint(AutomatonPtr a, AutomatonPtr b, size_t budget = kSearchBudget);

/// Computes which lengths, in Unicode scalar values, the accepted words of a state can have. Exact: the sequence of
/// sets "words of length n exist" is eventually periodic, and is unrolled up to its first repetition.
class LengthOracle {
 public:
  virtual ~LengthOracle() = default;
  /// True if some word from `state`, which must be at a scalar boundary, has `low` to `high` scalar values.
  virtual bool any_between(State state, uint64_t low, uint64_t high) = 0;
};
std::unique_ptr<LengthOracle> length_oracle(AutomatonPtr automaton, size_t budget = kSearchBudget);

// ---- JSON strings.

enum class Escapes {
  minimal,  ///< one spelling each, as serialisers print: `\"`, `\\`, `\b \f \n \r \t`, lower-case `\u00xx` for other
            ///< controls
  full      ///< every spelling of RFC 8259 section 7: `\/` and `\uxxxx` (surrogates in pairs) as well
};

/// Returns the JSON string texts, quotes included, whose value is in `content`.
AutomatonPtr json_string(AutomatonPtr content, Escapes escapes);

}  // namespace constrain
