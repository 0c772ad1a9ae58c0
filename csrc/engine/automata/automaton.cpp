#include "engine/automata/automaton.h"

#include <algorithm>
#include <memory>
#include <span>

#include "engine/automata/lazy.h"
#include "engine/base/interner.h"

namespace constrain {

ByteSet live_bytes(Automaton& automaton, State state) {
  return state == kDead ? ByteSet() : automaton.row(state).bytes();
}

bool Automaton::contains(std::string_view text) { return matches(*this, text); }

bool matches(Automaton& automaton, std::string_view text) {
  State state = automaton.start();
  for (auto byte = text.begin(); state != kDead && byte != text.end(); ++byte)
    state = automaton.row(state)[static_cast<uint8_t>(*byte)];
  return state != kDead && automaton.accepting(state);
}

namespace {

struct ByteRange {
  uint8_t first, last;
  State target;
};

/// The byte ranges of all states; state 0 is the start.
class Listing {
 public:
  void add_state(bool accepting) { states_.push_back({static_cast<uint32_t>(ranges_.size()), accepting}); }

  /// Adds a range of the last state.
  void add(const ByteRange& range) { ranges_.push_back(range); }

  size_t states() const { return states_.size(); }
  bool accepting(State state) const { return states_[state].accepting; }
  std::span<const ByteRange> ranges(State state) const {
    const size_t end = state + 1 < states_.size() ? states_[state + 1].begin : ranges_.size();
    return std::span(ranges_).subspan(states_[state].begin, end - states_[state].begin);
  }
  size_t bytes() const { return states_.capacity() * sizeof(Entry) + ranges_.capacity() * sizeof(ByteRange); }

 private:
  struct Entry {
    uint32_t begin;
    bool accepting;
  };
  std::vector<Entry> states_;
  std::vector<ByteRange> ranges_;
};

/// An automaton given by lists of byte ranges.
class ListedAutomaton : public LazyAutomaton {
 public:
  enum class Words : uint8_t {
    finite,   ///< states come before those they lead to
    endless,  ///< each state has words without end
  };
  ListedAutomaton(std::shared_ptr<const Listing> list, Words words) : list_(std::move(list)), kind_(words) {
    memory_.add(list_->bytes());
  }

  State start() override { return list_->states() == 0 ? kDead : 0; }
  bool accepting(State state) override { return list_->accepting(state); }

  bool contains(std::string_view text) override {
    if (list_->states() == 0) return false;
    State state = 0;
    for (const char byte : text) {
      const auto ranges = list_->ranges(state);
      const auto holds = [at = static_cast<uint8_t>(byte)](const ByteRange& one) {
        return one.first <= at && at <= one.last;
      };
      const auto found = std::ranges::find_if(ranges, holds);
      if (found == ranges.end()) return false;
      state = found->target;
    }
    return list_->accepting(state);
  }

  std::optional<uint64_t> least_words(State state) override {
    if (kind_ == Words::endless) return kInfinite;
    if (words_.empty()) {
      words_.resize(list_->states());
      for (size_t at = words_.size(); at-- > 0;) {
        words_[at] = list_->accepting(static_cast<State>(at));
        for (const ByteRange& range : list_->ranges(static_cast<State>(at))) words_[at] += words_[range.target];
      }
    }
    return words_[state];
  }

 private:
  void fill_row(State state, Transitions& row) override {
    for (const ByteRange& range : list_->ranges(state)) row.set(range.first, range.last, range.target);
  }

  std::shared_ptr<const Listing> list_;
  Words kind_;
  std::vector<uint64_t> words_;  // by state, once asked for
};

/// A node of the trie of sorted words; children come after their parents.
struct TrieNode {
  uint8_t byte = 0;
  bool accepting = false;
  uint32_t first_child = 0, last_child = 0, next = 0;  // 0 if there is none
};

std::vector<TrieNode> make_trie(const std::vector<std::string_view>& words) {
  size_t bytes = 0;
  for (const std::string_view word : words) bytes += word.size();
  std::vector<TrieNode> nodes(1);
  nodes.reserve(1 + bytes);
  for (const std::string_view word : words) {
    uint32_t at = 0;
    for (const char byte : word) {
      uint32_t child = nodes[at].last_child;
      if (!child || nodes[child].byte != static_cast<uint8_t>(byte)) {
        const auto made = static_cast<uint32_t>(nodes.size());
        nodes.push_back({.byte = static_cast<uint8_t>(byte)});
        (child ? nodes[child].next : nodes[at].first_child) = made;
        child = nodes[at].last_child = made;
      }
      at = child;
    }
    nodes[at].accepting = true;
  }
  return nodes;
}

/// Merges equal subtrees, and numbers the rest with the root first.
Listing merge_subtrees(const std::vector<TrieNode>& trie) {
  SequenceInterner shapes;
  std::vector<uint32_t> merged(trie.size()), key;
  for (size_t i = trie.size(); i-- > 0;) {
    key.assign(1, trie[i].accepting);
    for (uint32_t child = trie[i].first_child; child; child = trie[child].next)
      key.insert(key.end(), {trie[child].byte, merged[child]});
    merged[i] = shapes.intern(key);
  }
  const auto last = static_cast<uint32_t>(shapes.size() - 1);
  Listing list;
  for (uint32_t state = 0; state <= last; ++state) {
    const auto shape = shapes[last - state];
    list.add_state(shape[0] != 0);
    for (size_t i = 1; i < shape.size(); i += 2) {
      const auto byte = static_cast<uint8_t>(shape[i]);
      list.add({byte, byte, last - shape[i + 1]});
    }
  }
  return list;
}

// Well-formed UTF-8: table 3-7 of the Unicode standard.
Listing list_utf8() {
  enum : State { kText, kOneMore, kTwoMore, kThreeMore, kAfterE0, kAfterED, kAfterF0, kAfterF4 };
  Listing list;
  list.add_state(true);
  for (const ByteRange& range : {ByteRange{0x00, 0x7F, kText},
                                 {0xC2, 0xDF, kOneMore},
                                 {0xE0, 0xE0, kAfterE0},
                                 {0xE1, 0xEC, kTwoMore},
                                 {0xED, 0xED, kAfterED},
                                 {0xEE, 0xEF, kTwoMore},
                                 {0xF0, 0xF0, kAfterF0},
                                 {0xF1, 0xF3, kThreeMore},
                                 {0xF4, 0xF4, kAfterF4}}) {
    list.add(range);
  }
  for (const ByteRange& only : {ByteRange{0x80, 0xBF, kText},
                                {0x80, 0xBF, kOneMore},
                                {0x80, 0xBF, kTwoMore},
                                {0xA0, 0xBF, kOneMore},
                                {0x80, 0x9F, kOneMore},
                                {0x90, 0xBF, kTwoMore},
                                {0x80, 0x8F, kTwoMore}}) {
    list.add_state(false);
    list.add(only);
  }
  return list;
}

}  // namespace

AutomatonPtr empty_language() {
  return std::make_shared<ListedAutomaton>(std::make_shared<const Listing>(), ListedAutomaton::Words::finite);
}

AutomatonPtr any_text() {
  static const auto kUtf8 = std::make_shared<const Listing>(list_utf8());
  return std::make_shared<ListedAutomaton>(kUtf8, ListedAutomaton::Words::endless);
}

AutomatonPtr literal_set(std::vector<std::string_view> words) {
  if (words.empty()) return empty_language();
  std::ranges::sort(words);
  auto list = std::make_shared<const Listing>(merge_subtrees(make_trie(words)));
  return std::make_shared<ListedAutomaton>(std::move(list), ListedAutomaton::Words::finite);
}

}  // namespace constrain
