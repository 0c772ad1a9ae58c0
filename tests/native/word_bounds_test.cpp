// Tests of distances to the ends of words, in shared languages and for languages with taken words.
#include "engine/automata/word_bounds.h"

#include <algorithm>
#include <string>

#include "check.h"
#include "engine/automata/formats/formats.h"
#include "engine/automata/numbers/numbers.h"
#include "engine/automata/regex/regex.h"
#include "engine/automata/shared_automaton.h"
#include "engine/grammar/rule_bounds.h"

namespace constrain {

namespace {

/// Largest distance to an end among the first `count` states of an automaton.
uint64_t farthest(Automaton& automaton, size_t count) {
  std::vector<State> states{automaton.start()};
  uint64_t most = 0;
  for (size_t i = 0; i < states.size() && i < count; ++i) {
    most = std::max<uint64_t>(most, shortest_length(automaton, states[i]));
    for (const State to : automaton.row(states[i]).targets()) {
      if (to != kDead && std::ranges::find(states, to) == states.end()) states.push_back(to);
    }
  }
  return most;
}

std::optional<WordBounds> bounds(const char* pattern, uint64_t taken) {
  return word_bounds(*compile_regex(pattern, {}), taken, 100, [](uint8_t) { return 1; });
}

}  // namespace

TEST(no_word_of_a_shared_language_is_far) {
  for (const char* name : {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri",
                           "uri-reference", "iri", "uri-template", "uuid", "json-pointer", "regex"}) {
    CHECK(farthest(*json_string(find_format(name)->inner, Escapes::minimal), 600) <= string_lengths(name).farthest);
  }
  for (const bool integer : {false, true}) {
    NumberRange range;
    range.integer = integer;
    CHECK(farthest(*number_language(range), 600) <= 8);
  }
}

TEST(words_of_shared_languages_differ_soon) {
  constexpr size_t kMaxStates = 40'000;
  for (const char* name : {"date-time", "duration", "idn-email", "ipv6", "uri", "uuid", "regex"}) {
    const AutomatonPtr words = json_string(find_format(name)->inner, Escapes::minimal);
    const auto found = word_bounds(*words, RuleBounds::kItems, kMaxStates, [](uint8_t) { return 1; });
    CHECK(found && found->rest <= SharedAutomaton::kToDiffer);
  }
}

TEST(rests_of_words_are_bounded) {
  // Finite languages: the longest word. Others: the bytes that make more words than are taken.
  CHECK(bounds("ab|abcde", 1000)->rest == 5 && !bounds("ab|abcde", 1000)->endless);
  CHECK(bounds("[a-z]*", 5)->rest == 1 && bounds("[a-z]*", 5)->endless);
  CHECK(bounds("[a-z]*", 100)->rest == 3);
  CHECK(bounds("x-[a-z]{3}[a-z]*;", 9)->rest == 6 + 1);
  CHECK(bounds("(foo|x[a-z]*)", 9)->rest == 2);
  // Finite languages with more words than are taken may have shorter bounds.
  CHECK(bounds("[a-z]{90}", 5)->rest == 90 && bounds("[a-z]{1,90}", 9)->rest == 1);
  CHECK(bounds("[a-z]{1,90}", 9)->endless && bounds("[a-z]{1,90}", 999'999)->rest == 6);
  // No bound with few words of each length, or too many states.
  CHECK(!bounds("a*", 5) && !bounds("[a-z]*|;a*", 5) && !bounds("[a-z]{200}", 5));
}

}  // namespace constrain
