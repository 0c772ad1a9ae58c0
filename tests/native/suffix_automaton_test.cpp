// Tests of substrings of a text, and of their first ends.
#include "engine/text/suffix_automaton.h"

#include <map>
#include <string>

#include "check.h"

namespace constrain {

namespace {

/// First end of each substring.
std::map<std::string, size_t> ends_of(const std::string& text) {
  std::map<std::string, size_t> ends;
  for (size_t end = 0; end <= text.size(); ++end) {
    for (size_t begin = 0; begin <= end; ++begin) ends.try_emplace(text.substr(begin, end - begin), end);
  }
  return ends;
}

std::string text_of(uint32_t code, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i, code /= 3) text += static_cast<char>('a' + code % 3);
  return text;
}

}  // namespace

TEST(exactly_the_substrings_have_states) {
  for (uint32_t code = 0; code < 6561; code += 7) {
    const std::string text = text_of(code, 8);
    const SuffixAutomaton automaton(text);
    CHECK(automaton.states() < 2 * text.size());
    const auto ends = ends_of(text);
    for (const auto& [string, end] : ends) {
      SuffixAutomaton::State state = SuffixAutomaton::kRoot;
      for (const char byte : string) state = automaton.step(state, static_cast<uint8_t>(byte));
      CHECK(state != SuffixAutomaton::kNone && automaton.first_end(state) == end);
      for (const char byte : {'a', 'b', 'c', 'd'}) {
        const bool occurs = automaton.step(state, static_cast<uint8_t>(byte)) != SuffixAutomaton::kNone;
        CHECK(occurs == ends.contains(string + byte));
      }
    }
  }
}

TEST(an_empty_text_has_the_empty_string) {
  const SuffixAutomaton automaton("");
  CHECK(automaton.states() == 1 && automaton.step(SuffixAutomaton::kRoot, 'a') == SuffixAutomaton::kNone);
}

}  // namespace constrain
