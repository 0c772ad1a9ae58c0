#include "engine/automata/lexeme.h"

#include <algorithm>
#include <array>
#include <compare>
#include <optional>

#include "engine/automata/lazy.h"
#include "engine/base/errors.h"
#include "engine/base/interner.h"

namespace constrain::cfg {

namespace {

template <class Holds>
bool all_of(const ByteSet& bytes, Holds holds) {
  for (int byte = bytes.next(0); byte >= 0; byte = bytes.next(byte + 1)) {
    if (!holds(static_cast<uint8_t>(byte))) return false;
  }
  return true;
}

}  // namespace

/// Numbers sets of shadows: automata of ignored languages that still watch the text. 0 is the empty set.
class Lexemes::Shadows {
 public:
  using Set = uint32_t;
  static constexpr Set kNone = 0;

  Shadows(std::vector<AutomatonPtr> ignored, const ByteSet& next) : ignored_(std::move(ignored)), next_(next) {
    sets_.intern({});
    leads_.resize(ignored_.size(), false);
    find_leads();
  }

  size_t size() const { return ignored_.size(); }
  Automaton& ignored(uint32_t part) const { return *ignored_[part]; }

  /// True if ignored words of this language may leave a shadow that matters.
  bool leads(uint32_t part) const { return leads_[part]; }

  /// Advances the shadows by a byte; none if one of them accepts.
  std::optional<Set> step(Set set, uint8_t byte) {
    if (set == kNone) return kNone;
    std::vector<uint32_t> next;
    const auto key = sets_[set];
    for (size_t i = 0; i < key.size(); i += 2) {
      const State state = ignored_[key[i]]->step(key[i + 1], byte);
      if (state == kDead) continue;
      if (ignored_[key[i]]->accepting(state)) return std::nullopt;
      next.insert(next.end(), {key[i], state});
    }
    return intern(next);
  }

  /// Shadows after an ignored word that ended in `state` and was itself watched by `set`.
  Set after(Set set, uint32_t part, State state) {
    if (live_bytes(*ignored_[part], state) == ByteSet()) return set;
    const auto key = sets_[set];
    std::vector<uint32_t> next(key.begin(), key.end());
    next.insert(next.end(), {part, state});
    return intern(next);
  }

  /// True if every shadow dies on the first byte of whatever may come next.
  bool harmless(Set set) const {
    const auto key = sets_[set];
    for (size_t i = 0; i < key.size(); i += 2) {
      if ((live_bytes(*ignored_[key[i]], key[i + 1]) & next_) != ByteSet()) return false;
    }
    return true;
  }

  /// True if every shadow dies on all of these bytes, false if some shadow accepts on one of them, none otherwise.
  std::optional<bool> permits(Set set, const ByteSet& first) {
    if (all_of(first, [&](uint8_t byte) { return step(set, byte) == kNone; })) return true;
    if (all_of(first, [&](uint8_t byte) { return !step(set, byte); })) return false;
    return std::nullopt;
  }

 private:
  /// Sorts the pairs, so that equal sets have equal numbers.
  Set intern(const std::vector<uint32_t>& key) {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (size_t i = 0; i < key.size(); i += 2) pairs.emplace_back(key[i], key[i + 1]);
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    std::vector<uint32_t> sorted;
    for (const auto& [part, state] : pairs) sorted.insert(sorted.end(), {part, state});
    return sets_.intern(sorted);
  }

  /// An end of an ignored word: its language, and the shadows after it.
  struct End {
    uint32_t part;
    Set shadows;
  };

  /// Lists the ends of words in all sequences of ignored words.
  std::vector<End> all_ends() {
    std::vector<End> ends;
    SequenceInterner runs;  // words under way: part, state, shadows
    std::vector<bool> begun;
    const auto begin_words = [&](Set shadows) {
      if (shadows >= begun.size()) begun.resize(shadows + 1, false);
      if (begun[shadows]) return;
      begun[shadows] = true;
      for (uint32_t part = 0; part < size(); ++part) {
        runs.intern(std::array{part, ignored_[part]->start(), shadows});
      }
    };
    begin_words(kNone);
    for (uint32_t run = 0; run < runs.size(); ++run) {
      if (run == kSearchBudget) throw ResourceLimit("search_states", kSearchBudget, "in sequences of ignored text");
      const uint32_t part = runs[run][0], from = runs[run][1], shadows = runs[run][2];
      for (int byte = 0; byte < 256; ++byte) {
        const State state = ignored_[part]->step(from, static_cast<uint8_t>(byte));
        const auto watching = state == kDead ? std::nullopt : step(shadows, static_cast<uint8_t>(byte));
        if (!watching) continue;
        const size_t num_runs = runs.size();
        const uint32_t next = runs.intern(std::array{part, state, *watching});
        if (next < num_runs || !ignored_[part]->accepting(state)) continue;
        ends.push_back({part, after(*watching, part, state)});
        begin_words(ends.back().shadows);
      }
    }
    return ends;
  }

  /// Finds the languages whose words may leave a shadow that matters. Their words belong to the next terminal, so their
  /// first bytes extend the bytes that may come next, which may make more shadows matter: iterates to a fixpoint.
  void find_leads() {
    const std::vector<End> ends = all_ends();
    for (bool changed = true; changed;) {
      changed = false;
      for (const End& end : ends) {
        if (leads_[end.part] || harmless(end.shadows)) continue;
        leads_[end.part] = changed = true;
        next_.add(live_bytes(*ignored_[end.part], ignored_[end.part]->start()));
      }
    }
  }

  std::vector<AutomatonPtr> ignored_;
  ByteSet next_;  ///< first bytes of terminals and of the ignored text before them
  std::vector<bool> leads_;
  SequenceInterner sets_;
};

namespace {

using Shadows = Lexemes::Shadows;

/// A parse thread of the lexeme.
struct Thread {
  enum Phase : uint32_t {
    lead,   ///< in an ignored word, before the terminal
    core,   ///< in the terminal
    trail,  ///< in an ignored word after which the lexeme may end
  };
  uint32_t phase, part, state, shadows;

  auto operator<=>(const Thread&) const = default;
};

/// Matches sequences of ignored words, the terminal, and sequences of ignored words, with all parse threads at once.
class Lexeme : public PrunedAutomaton {
 public:
  Lexeme(std::shared_ptr<Shadows> shadows, AutomatonPtr terminal, std::optional<ByteSet> next = {})
      : PrunedAutomaton(kSearchBudget), shadows_(std::move(shadows)), terminal_(std::move(terminal)), next_(next) {}

  void begin_with(Thread::Phase phase) {
    if (phase == Thread::core) {
      first_.push_back({Thread::core, 0, terminal_->start(), Shadows::kNone});
      return;
    }
    for (uint32_t part = 0; part < shadows_->size(); ++part) {
      if (phase == Thread::lead && !shadows_->leads(part)) continue;
      first_.push_back({phase, part, shadows_->ignored(part).start(), Shadows::kNone});
    }
  }

  bool accepting(State state) override {
    const std::vector<Thread> threads = threads_of(state);
    return std::any_of(threads.begin(), threads.end(), [&](const Thread& thread) { return ends(thread); });
  }

  /// True if neither the terminal nor the first byte after it decides whether a shadow that matters is in the way.
  bool undecided() {
    SequenceInterner watched;  // threads within the terminal that a shadow may watch
    const auto meet = [&](const Thread& t) {
      const bool relevant = t.phase == Thread::lead || (t.phase == Thread::core && t.shadows != Shadows::kNone);
      if (relevant) watched.intern(std::array{t.phase, t.part, t.state, t.shadows});
    };
    std::for_each(first_.begin(), first_.end(), meet);
    std::vector<Thread> next;
    for (uint32_t id = 0; id < watched.size(); ++id) {
      if (id == kSearchBudget) throw ResourceLimit("search_states", kSearchBudget, "in ignored text before a terminal");
      const Thread thread{watched[id][0], watched[id][1], watched[id][2], watched[id][3]};
      if (automaton(thread).accepting(thread.state) && undecided(thread)) return true;
      next.clear();
      for (int byte = 0; byte < 256; ++byte) step(thread, static_cast<uint8_t>(byte), next);
      std::for_each(next.begin(), next.end(), meet);
    }
    return false;
  }

 private:
  /// Tests one thread, at the end of a word.
  bool undecided(const Thread& thread) {
    const Shadows::Set after = shadows_after(thread);
    if (shadows_->harmless(after)) return false;
    return thread.phase == Thread::core || (next_ && !shadows_->permits(after, *next_));
  }

  std::vector<Thread> threads_of(State state) const {
    const auto key = states_[state];
    std::vector<Thread> threads;
    for (size_t i = 0; i < key.size(); i += 4) threads.push_back({key[i], key[i + 1], key[i + 2], key[i + 3]});
    return threads;
  }

  State name(std::vector<Thread> threads) {
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    std::vector<uint32_t> key;
    for (const Thread& t : threads) key.insert(key.end(), {t.phase, t.part, t.state, t.shadows});
    return key.empty() ? kDead : states_.intern(key);
  }

  State raw_start() override { return name(first_); }

  void fill_row(State state, Transitions& row) override {
    const std::vector<Thread> threads = threads_of(state);
    std::vector<Thread> next, previous;
    State target = kDead;
    for (int byte = 0; byte < 256; ++byte) {
      next.clear();
      for (const Thread& thread : threads) step(thread, static_cast<uint8_t>(byte), next);
      if (next != previous) target = name(next);
      row.set(byte, target);
      std::swap(next, previous);
    }
  }

  Verdict glance(State state) override {
    for (const Thread& thread : threads_of(state)) {
      if (ends(thread) || (thread.phase == Thread::core && thread.shadows == Shadows::kNone)) return Verdict::live;
    }
    return Verdict::unknown;
  }

  Automaton& automaton(const Thread& thread) const {
    return thread.phase == Thread::core ? *terminal_ : shadows_->ignored(thread.part);
  }

  void step(const Thread& thread, uint8_t byte, std::vector<Thread>& out) {
    const State state = automaton(thread).step(thread.state, byte);
    if (state == kDead) return;
    const auto shadows = shadows_->step(thread.shadows, byte);
    if (!shadows) return;
    const Thread moved{thread.phase, thread.part, state, *shadows};
    out.push_back(moved);
    if (automaton(moved).accepting(state)) follow(moved, out);
  }

  /// Adds the threads that may start where a thread has completed its word.
  void follow(const Thread& thread, std::vector<Thread>& out) {
    const Shadows::Set after = shadows_after(thread);
    const uint32_t phase = thread.phase == Thread::lead ? Thread::lead : Thread::trail;
    if (phase == Thread::lead) {
      if (shadows_->harmless(after)) return;  // this text belongs to the terminal before it
      if (terminal_) out.push_back({Thread::core, 0, terminal_->start(), after});
    }
    for (uint32_t part = 0; part < shadows_->size(); ++part) {
      out.push_back({phase, part, shadows_->ignored(part).start(), after});
    }
  }

  Shadows::Set shadows_after(const Thread& thread) {
    return thread.phase == Thread::core ? thread.shadows : shadows_->after(thread.shadows, thread.part, thread.state);
  }

  /// True if the lexeme may end with this thread. Without a terminal, ignored text before one may end instead, at the
  /// end of the text.
  bool ends(const Thread& thread) {
    if (!automaton(thread).accepting(thread.state)) return false;
    const Shadows::Set after = shadows_after(thread);
    const bool harmless = shadows_->harmless(after);
    if (thread.phase != Thread::lead) return harmless;
    return !terminal_ && !harmless && (!next_ || shadows_->permits(after, *next_) == true);
  }

  std::shared_ptr<Shadows> shadows_;
  AutomatonPtr terminal_;        ///< null for ignored text alone
  std::optional<ByteSet> next_;  ///< for ignored text before something else: the bytes that may follow
  std::vector<Thread> first_;
  SequenceInterner states_;
};

}  // namespace

Lexemes::Lexemes(std::vector<AutomatonPtr> ignored, const ByteSet& next)
    : shadows_(std::make_shared<Shadows>(std::move(ignored), next)) {}

Lexemes::~Lexemes() = default;

AutomatonPtr Lexemes::of(const AutomatonPtr& terminal) const {
  auto lexeme = std::make_shared<Lexeme>(shadows_, terminal);
  lexeme->begin_with(Thread::core);
  lexeme->begin_with(Thread::lead);
  return lexeme->undecided() ? nullptr : lexeme;
}

AutomatonPtr Lexemes::before(const ByteSet& first) const {
  auto lexeme = std::make_shared<Lexeme>(shadows_, nullptr, first);
  lexeme->begin_with(Thread::lead);
  return lexeme->undecided() ? nullptr : lexeme;
}

AutomatonPtr Lexemes::after() const {
  auto lexeme = std::make_shared<Lexeme>(shadows_, nullptr);
  lexeme->begin_with(Thread::trail);
  return lexeme;
}

AutomatonPtr Lexemes::after_last() const {
  auto lexeme = std::make_shared<Lexeme>(shadows_, nullptr);
  lexeme->begin_with(Thread::lead);
  return lexeme;
}

}  // namespace constrain::cfg
