#include "engine/automata/automaton.h"

#include <algorithm>

#include "engine/automata/lazy.h"
#include "engine/base/interner.h"

namespace constrain {

ByteSet live_bytes(Automaton& automaton, State state) {
  return state == kDead ? ByteSet() : automaton.row(state).bytes();
}

bool matches(Automaton& automaton, std::string_view text) {
  State state = automaton.start();
  for (char byte : text) state = automaton.step(state, static_cast<uint8_t>(byte));
  return state != kDead && automaton.accepting(state);
}

namespace {

struct ByteRange {
  uint8_t first, last;
  State target;
};

/// An automaton given by lists of byte ranges; state 0 is the start.
class ListedAutomaton : public LazyAutomaton {
 public:
  struct Node {
    std::vector<ByteRange> ranges;
    bool accepting = false;
  };

  explicit ListedAutomaton(std::vector<Node> nodes) : nodes_(std::move(nodes)) {
    for (const Node& node : nodes_) memory_.add(sizeof(Node) + node.ranges.capacity() * sizeof(ByteRange));
  }

  State start() override { return nodes_.empty() ? kDead : 0; }
  bool accepting(State state) override { return nodes_[state].accepting; }

 private:
  void fill_row(State state, Transitions& row) override {
    row.fill(kDead);
    for (const ByteRange& range : nodes_[state].ranges) {
      std::fill(row.begin() + range.first, row.begin() + range.last + 1, range.target);
    }
  }

  std::vector<Node> nodes_;
};

/// Builds the trie of sorted words; children come after their parents.
std::vector<ListedAutomaton::Node> make_trie(const std::vector<std::string>& words) {
  std::vector<ListedAutomaton::Node> nodes(1);
  for (const std::string& word : words) {
    State at = 0;
    for (char character : word) {
      const auto byte = static_cast<uint8_t>(character);
      if (nodes[at].ranges.empty() || nodes[at].ranges.back().first != byte) {
        nodes[at].ranges.push_back({byte, byte, static_cast<State>(nodes.size())});
        nodes.emplace_back();
      }
      at = nodes[at].ranges.back().target;
    }
    nodes[at].accepting = true;
  }
  return nodes;
}

/// Merges equal subtrees, and renumbers the rest with the root first.
std::vector<ListedAutomaton::Node> merge_subtrees(const std::vector<ListedAutomaton::Node>& trie) {
  SequenceInterner shapes;
  std::vector<uint32_t> merged(trie.size()), key;
  for (size_t i = trie.size(); i-- > 0;) {
    key.assign(1, trie[i].accepting);
    for (const ByteRange& range : trie[i].ranges) key.insert(key.end(), {range.first, merged[range.target]});
    merged[i] = shapes.intern(key);
  }
  const auto last = static_cast<uint32_t>(shapes.size() - 1);
  std::vector<ListedAutomaton::Node> nodes(shapes.size());
  for (uint32_t id = 0; id <= last; ++id) {
    const auto shape = shapes[id];
    ListedAutomaton::Node& node = nodes[last - id];
    node.accepting = shape[0] != 0;
    for (size_t i = 1; i < shape.size(); i += 2) {
      const auto byte = static_cast<uint8_t>(shape[i]);
      node.ranges.push_back({byte, byte, last - shape[i + 1]});
    }
  }
  return nodes;
}

}  // namespace

AutomatonPtr empty_language() { return std::make_shared<ListedAutomaton>(std::vector<ListedAutomaton::Node>{}); }

// Well-formed UTF-8: table 3-7 of the Unicode standard.
AutomatonPtr any_text() {
  enum : State { kText, kOneMore, kTwoMore, kThreeMore, kAfterE0, kAfterED, kAfterF0, kAfterF4 };
  std::vector<ListedAutomaton::Node> nodes(8);
  nodes[kText] = {{{0x00, 0x7F, kText},
                   {0xC2, 0xDF, kOneMore},
                   {0xE0, 0xE0, kAfterE0},
                   {0xE1, 0xEC, kTwoMore},
                   {0xED, 0xED, kAfterED},
                   {0xEE, 0xEF, kTwoMore},
                   {0xF0, 0xF0, kAfterF0},
                   {0xF1, 0xF3, kThreeMore},
                   {0xF4, 0xF4, kAfterF4}},
                  true};
  nodes[kOneMore].ranges = {{0x80, 0xBF, kText}};
  nodes[kTwoMore].ranges = {{0x80, 0xBF, kOneMore}};
  nodes[kThreeMore].ranges = {{0x80, 0xBF, kTwoMore}};
  nodes[kAfterE0].ranges = {{0xA0, 0xBF, kOneMore}};
  nodes[kAfterED].ranges = {{0x80, 0x9F, kOneMore}};
  nodes[kAfterF0].ranges = {{0x90, 0xBF, kTwoMore}};
  nodes[kAfterF4].ranges = {{0x80, 0x8F, kTwoMore}};
  return std::make_shared<ListedAutomaton>(std::move(nodes));
}

AutomatonPtr literal_set(std::vector<std::string> words) {
  if (words.empty()) return empty_language();
  std::ranges::sort(words);
  return std::make_shared<ListedAutomaton>(merge_subtrees(make_trie(words)));
}

}  // namespace constrain
