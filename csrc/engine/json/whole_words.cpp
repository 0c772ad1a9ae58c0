#include "engine/json/whole_words.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "engine/automata/lazy.h"
#include "engine/base/interner.h"
#include "engine/json/word_borders.h"
#include "engine/text/suffix_automaton.h"
#include "engine/text/utf8.h"

namespace constrain::json {

namespace {

/// Marks the borders of words; occurs in no UTF-8.
constexpr uint8_t kBorder = 0xFF;

std::string with_borders(const std::string& text) {
  const std::u32string characters = decode_utf8(text);
  const std::vector<bool> borders = word_borders(characters);
  std::string marked;
  for (size_t i = 0; i < characters.size(); ++i) {
    if (borders[i]) marked += static_cast<char>(kBorder);
    append_utf8(marked, characters[i]);
  }
  return marked + static_cast<char>(kBorder);
}

std::string with_borders(const std::vector<std::string>& chunks) {
  std::string marked;
  for (const std::string& chunk : chunks) {
    if (!chunk.empty()) marked += static_cast<char>(kBorder) + chunk;
  }
  return marked + static_cast<char>(kBorder);
}

/// Matches strings in the text with marked borders, where marks between the bytes of the string are skipped. Before the
/// first character is complete it is unknown whether a border precedes it, so a state is a set of states of the text's
/// suffix automaton.
class WholeWords final : public LazyAutomaton {
 public:
  explicit WholeWords(const std::string& marked) : substrings_(marked) {
    states_.intern(std::vector<uint32_t>{substrings_.step(SuffixAutomaton::kRoot, kBorder)});
  }

  State start() override { return kBegin; }

  /// Strings end before a border.
  bool accepting(State state) override {
    const auto ends = [&](uint32_t at) { return substrings_.step(at, kBorder) != SuffixAutomaton::kNone; };
    return state == kBegin || std::ranges::any_of(states_[state], ends);
  }

 private:
  static constexpr State kBegin = 0;

  void fill_row(State state, Transitions& row) override {
    std::vector<uint32_t> from(states_[state].begin(), states_[state].end());
    for (size_t i = from.size(); i-- > 0;) {
      const uint32_t past = substrings_.step(from[i], kBorder);
      if (past != SuffixAutomaton::kNone) from.push_back(past);
    }
    std::map<uint8_t, std::vector<uint32_t>> next;
    for (const uint32_t at : from) {
      substrings_.for_each_step(at, [&](uint8_t byte, uint32_t target) { next[byte].push_back(target); });
    }
    next.erase(kBorder);
    for (auto& [byte, targets] : next) {
      std::ranges::sort(targets);
      row.set(byte, states_.intern(targets));
    }
  }

  SuffixAutomaton substrings_;
  SequenceInterner states_;
};

}  // namespace

AutomatonPtr whole_words_of(const std::string& text) { return std::make_shared<WholeWords>(with_borders(text)); }

AutomatonPtr whole_chunks_of(const std::vector<std::string>& chunks) {
  return std::make_shared<WholeWords>(with_borders(chunks));
}

}  // namespace constrain::json
