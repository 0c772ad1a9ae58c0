// Tests of regular languages without Python, under sanitizers: random walks over all kinds of automata.
#include <random>
#include <string>

#include "check.h"
#include "engine/automata/formats/formats.h"
#include "engine/automata/numbers/numbers.h"
#include "engine/automata/regex/regex.h"
#include "engine/base/errors.h"

namespace constrain {

namespace {

/// Walks at random and then along a shortest word; false if a state turns out to be a dead end.
bool walks_end(const AutomatonPtr& automaton, std::mt19937& random) {
  const State start = automaton->start();
  if (start == kDead) return true;
  State state = start;
  std::string text;
  for (int steps = 0; steps < 40; ++steps) {
    const ByteSet bytes = automaton->row(state).bytes();
    std::vector<uint8_t> following;
    for (int byte = bytes.next(0); byte >= 0; byte = bytes.next(byte + 1)) {
      following.push_back(static_cast<uint8_t>(byte));
    }
    if (following.empty()) return automaton->accepting(state);
    const uint8_t byte = following[random() % following.size()];
    text.push_back(static_cast<char>(byte));
    state = automaton->step(state, byte);
  }
  shortest_length(*automaton, state);
  return true;
}

const char* const kPatterns[] = {
    "",
    "^(?!@@)[\\w@]+$",
    "^((?!mode)(?!Mode).)*$",
    "^(\\S+\\s+){0,99}\\S+$",
    "(?:a|ab)*?\\b(?<=b)[^\\d]{2,}|^$",
    "^[\\p{L}\\p{Nd}]{1,9}(?=\\.)\\.[^]*$",
    "(?i)^[a-zßé]+$",
    "[]|\\u{1F600}",
};

TEST(random_walks_through_patterns_have_no_dead_ends) {
  std::mt19937 random(1);
  for (const char* pattern : kPatterns) {
    for (const Classes classes : {Classes::dialect, Classes::inner, Classes::outer}) {
      for (const bool search : {false, true}) {
        RegexOptions options{.dialect = Dialect::ecma, .classes = classes, .search = search, .leftmost_first = !search};
        const AutomatonPtr content = compile_regex(pattern, options);
        const AutomatonPtr text = json_string(subtract(content, literal_set({"a", "é"})), Escapes::full);
        for (int walk = 0; walk < 5; ++walk) CHECK(walks_end(content, random) && walks_end(text, random));
      }
    }
  }
}

TEST(random_walks_through_formats_have_no_dead_ends) {
  std::mt19937 random(2);
  for (const char* name : {"date", "date-time", "duration", "email", "idn-hostname", "ipv6", "uri", "iri-reference",
                           "uri-template", "json-pointer", "regex"}) {
    const auto format = find_format(name);
    CHECK(format.has_value());
    for (int walk = 0; walk < 10; ++walk)
      CHECK(walks_end(format->inner, random) && walks_end(outer_format(name), random));
  }
}

TEST(random_walks_through_numbers_have_no_dead_ends) {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    NumberRange range;
    range.integer = i % 2 == 0;
    if (i % 3 != 0)
      range.lower = Bound{Decimal::parse(std::to_string(static_cast<int>(random() % 2000) - 1000)), i % 5 == 0};
    if (i % 4 != 0) range.upper = Bound{Decimal::parse(std::to_string(random() % 3000) + ".25e1"), i % 7 == 0};
    if (i % 3 == 1) range.multiples_of = {Decimal::parse("0.05"), Decimal::parse(std::to_string(1 + random() % 99))};
    for (int walk = 0; walk < 10; ++walk) CHECK(walks_end(number_language(range), random));
  }
}

TEST(broken_patterns_are_refused_wherever_they_are_cut) {
  const std::string whole = "(?<n>a[\\u{41}-\\x5a]{2,3}|(?!b\\p{Lu}))\\cJ(?i:c)*?$";
  for (size_t end = 0; end <= whole.size(); ++end) {
    for (const Dialect dialect : {Dialect::python, Dialect::ecma}) {
      try {
        compile_regex(whole.substr(0, end), {.dialect = dialect})->start();
      } catch (const RegexError& error) {
        CHECK(error.offset <= end);
      }
    }
  }
}

TEST(searches_of_parts_and_of_texts_agree_with_rows) {
  std::mt19937 random(2);
  const auto draw = [&] {
    std::vector<std::string> words;
    while (words.size() < 4) {
      std::string word(random() % 4, 'a');
      for (char& letter : word) letter = "ab\n\""[random() % 4];
      words.push_back(word);
    }
    return literal_set({words.begin(), words.end()});
  };
  for (int round = 0; round < 300; ++round) {
    const AutomatonPtr either = unite({draw(), subtract(unite({draw(), draw()}), draw()), intersect(draw(), draw())});
    const AutomatonPtr language = round % 2 ? either : subtract(complement(draw()), either);
    std::string text(random() % 4, 'a');
    for (char& letter : text) letter = "ab\n\""[random() % 4];
    CHECK(language->contains(text) == matches(*language, text));
    const AutomatonPtr written = json_string(language, round % 3 ? Escapes::minimal : Escapes::full);
    State at = written->start();
    for (int step = 0; step < 6 && at != kDead; ++step) {
      CHECK(shortest_length(*written, at) == shortest_way(*written, at).size() - 1);
      const ByteSet bytes = written->row(at).bytes();
      const int byte = bytes.next(static_cast<int>(random() % 128));
      at = byte < 0 ? kDead : written->step(at, static_cast<uint8_t>(byte));
    }
  }
}

TEST(lengths_beyond_any_word) {
  const AutomatonPtr automaton = compile_regex("(?:aaa)*|b{5}", {});
  const auto oracle = length_oracle(automaton);
  CHECK(oracle->any_between(automaton->start(), 3'000'000'000'000, 3'000'000'000'000));
  CHECK(!oracle->any_between(automaton->start(), 3'000'000'000'001, 3'000'000'000'002));
}

}  // namespace

}  // namespace constrain
