// Tests of automata that all grammars share.
#include "engine/automata/shared_automaton.h"

#include <memory>
#include <optional>
#include <string>

#include "check.h"
#include "engine/base/errors.h"

namespace constrain {

namespace {

/// The words `a`; counts the searches for a shortest one.
class Searched : public Automaton {
 public:
  State start() override { return words_->start(); }
  const StateRow& row(State state) override { return words_->row(state); }
  bool accepting(State state) override { return words_->accepting(state); }
  std::optional<uint32_t> shortest(State state, size_t budget) override {
    ++searches;
    if (budget == 0) throw ResourceLimit("search_states", budget, "in a test");
    return accepting(state) ? 0 : 1;
  }

  int searches = 0;

 private:
  AutomatonPtr words_ = literal_set({"a"});
};

}  // namespace

TEST(shortest_words_are_searched_once_for_all_grammars) {
  const auto language = std::make_shared<Searched>();
  SharedAutomaton shared(language);
  const State start = shared.start(), end = shared.step(start, 'a');
  for (int grammar = 0; grammar < 3; ++grammar) {
    CHECK(shared.shortest(start, 100) == 1);
    CHECK(shared.shortest(end, 100) == 0);
  }
  CHECK(language->searches == 2);
}

TEST(a_search_that_found_nothing_is_repeated) {
  const auto language = std::make_shared<Searched>();
  SharedAutomaton shared(language);
  bool refused = false;
  try {
    shared.shortest(shared.start(), 0);
  } catch (const ResourceLimit&) {
    refused = true;
  }
  CHECK(refused);
  CHECK(shared.shortest(shared.start(), 100) == 1);
}

TEST(languages_of_one_name_share_an_automaton_until_there_are_too_many) {
  SharedAutomata automata(2);
  const auto word = [&](const std::string& text) { return automata.get(text, [&] { return literal_set({text}); }); };
  const AutomatonPtr a = word("a");
  CHECK(word("b") != a);
  CHECK(word("a") == a);
  word("c");
  CHECK(word("a") != a);
  CHECK(matches(*a, "a") && matches(*word("a"), "a"));
}

}  // namespace constrain
