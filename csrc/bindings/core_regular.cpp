// Bindings of regular languages.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/automata/formats/formats.h"
#include "engine/automata/numbers/numbers.h"
#include "engine/automata/regex/regex.h"

namespace py = pybind11;

namespace constrain {

namespace {

/// Looks up an enumerator by name.
template <typename Enum>
Enum choose(const std::string& name, std::initializer_list<std::pair<const char*, Enum>> choices) {
  std::string names;
  for (const auto& [label, value] : choices) {
    if (name == label) return value;
    names += std::string(names.empty() ? "" : ", ") + label;
  }
  throw std::invalid_argument("'" + name + "' is none of " + names);
}

AutomatonPtr from_regex(const std::string& pattern, const std::string& dialect, const std::string& classes, bool search,
                        bool leftmost_first, const std::string& flags) {
  RegexOptions options;
  options.dialect = choose<Dialect>(dialect, {{"python", Dialect::python}, {"ecma", Dialect::ecma}});
  options.classes =
      choose<Classes>(classes, {{"dialect", Classes::dialect}, {"inner", Classes::inner}, {"outer", Classes::outer}});
  options.search = search;
  options.leftmost_first = leftmost_first;
  for (char flag : flags) {
    switch (flag) {
      case 'i':
        options.ignore_case = true;
        break;
      case 'm':
        options.multi_line = true;
        break;
      case 's':
        options.dot_all = true;
        break;
      case 'x':
        options.verbose = true;
        break;
      default:
        throw std::invalid_argument(std::string("'") + flag + "' is none of the flags i, m, s, x");
    }
  }
  return compile_regex(pattern, options);
}

std::optional<std::pair<AutomatonPtr, AutomatonPtr>> from_format(const std::string& name) {
  const auto format = find_format(name);
  if (!format) return std::nullopt;
  return std::pair(format->inner, outer_format(name));
}

std::optional<Bound> make_bound(const std::optional<std::string>& inclusive,
                                const std::optional<std::string>& exclusive) {
  if (inclusive && exclusive) throw std::invalid_argument("a bound is either inclusive or exclusive");
  if (inclusive) return Bound{Decimal::parse(*inclusive), false};
  if (exclusive) return Bound{Decimal::parse(*exclusive), true};
  return std::nullopt;
}

AutomatonPtr from_number_range(bool integer, const std::optional<std::string>& minimum,
                               const std::optional<std::string>& maximum,
                               const std::optional<std::string>& exclusive_minimum,
                               const std::optional<std::string>& exclusive_maximum,
                               const std::vector<std::string>& multiples_of) {
  NumberRange range;
  range.integer = integer;
  range.lower = make_bound(minimum, exclusive_minimum);
  range.upper = make_bound(maximum, exclusive_maximum);
  for (const std::string& step : multiples_of) range.multiples_of.push_back(Decimal::parse(step));
  return number_language(range);
}

AutomatonPtr as_json_string(AutomatonPtr content, const std::string& escapes) {
  return json_string(std::move(content),
                     choose<Escapes>(escapes, {{"minimal", Escapes::minimal}, {"full", Escapes::full}}));
}

std::optional<State> live(State state) { return state == kDead ? std::nullopt : std::optional(state); }

State state_or_start(Automaton& automaton, std::optional<State> state) { return state ? *state : automaton.start(); }

using AutomatonClass = py::class_<Automaton, AutomatonPtr>;

void bind_languages(AutomatonClass& automaton) {
  automaton.def_static("empty", &empty_language, "The language without words.")
      .def_static("any_text", &any_text, "Every well-formed UTF-8 text.")
      .def_static(
          "literals", [](const std::vector<py::bytes>& words) { return literal_set({words.begin(), words.end()}); },
          py::arg("words"), "Exactly these words (bytes, UTF-8).")
      .def_static("regex", &from_regex, py::arg("pattern"), py::kw_only(), py::arg("dialect") = "python",
                  py::arg("classes") = "dialect", py::arg("search") = false, py::arg("leftmost_first") = false,
                  py::arg("flags") = "",
                  "Texts that a regular expression matches as a whole, or anywhere with `search`.\n\n"
                  "`dialect` is python or ecma. `classes` says which characters \\d \\w \\s and . stand for: those of "
                  "the dialect, or only (`inner`) or at least (`outer`) what both dialects agree on. `leftmost_first` "
                  "keeps only the matches that a backtracking matcher prefers. `flags` are letters of \"imsx\".\n"
                  "Raises RegexError if the pattern does not compile.")
      .def_static("format", &from_format, py::arg("name"),
                  "(inner, outer) languages of a value of JSON Schema's `format`: inner holds only what its standard "
                  "defines, outer also what a common validator accepts. None for an unknown name.")
      .def_static("number", &from_number_range, py::kw_only(), py::arg("integer") = false,
                  py::arg("minimum") = py::none(), py::arg("maximum") = py::none(),
                  py::arg("exclusive_minimum") = py::none(), py::arg("exclusive_maximum") = py::none(),
                  py::arg("multiples_of") = py::tuple(),
                  "JSON spellings of the numbers in a range; bounds and steps are decimal strings, taken exactly.")
      .def_static(
          "number_literal", [](const std::string& value) { return number_literal(Decimal::parse(value)); },
          py::arg("value"), "Plain JSON spellings of one number.");
}

void bind_operations(AutomatonClass& automaton) {
  automaton.def("__and__", &intersect)
      .def("__or__", [](AutomatonPtr a, AutomatonPtr b) { return unite({std::move(a), std::move(b)}); })
      .def("__sub__", &subtract)
      .def("__add__", &concatenate)
      .def("__invert__", &complement, "All other well-formed texts.")
      .def("json_string", &as_json_string, py::arg("escapes") = "minimal",
           "JSON strings, quotes included, whose value is in this language. `escapes`: minimal (one spelling each) or "
           "full (every spelling).");
}

void bind_states(AutomatonClass& automaton) {
  automaton.def(
               "start", [](Automaton& a) { return live(a.start()); }, "Start state; None for the empty language.")
      .def(
          "step", [](Automaton& a, State state, uint8_t byte) { return live(a.step(state, byte)); }, py::arg("state"),
          py::arg("byte"), "State after a byte, or None.")
      .def("accepting", &Automaton::accepting, py::arg("state"), "True if the text is complete in this state.")
      .def(
          "next_bytes",
          [](Automaton& a, State state) {
            std::vector<int> bytes;
            const StateRow& row = a.row(state);
            for (int byte = 0; byte < 256; ++byte) {
              if (row[byte] != kDead) bytes.push_back(byte);
            }
            return bytes;
          },
          py::arg("state"), "Bytes that can follow.")
      .def(
          "matches", [](Automaton& a, std::string_view text) { return matches(a, text); }, py::arg("text"),
          "True if `text` (bytes, or a str taken as UTF-8) is in the language.");
}

void bind_questions(AutomatonClass& automaton) {
  automaton.def("is_empty", &is_empty)
      .def(
          "shortest_length",
          [](Automaton& a, std::optional<State> state) { return shortest_length(a, state_or_start(a, state)); },
          py::arg("state") = py::none(), "Bytes of a shortest word from `state` (default: the start).")
      .def(
          "count",
          [](Automaton& a, uint64_t cap, std::optional<State> state) {
            return count_words(a, state_or_start(a, state), cap);
          },
          py::arg("cap"), py::arg("state") = py::none(), "Number of words from `state`, at most `cap`.")
      .def(
          "words",
          [](Automaton& a, size_t cap) {
            std::vector<py::bytes> words;
            for (const std::string& word : enumerate_words(a, cap)) words.emplace_back(word);
            return words;
          },
          py::arg("cap"), "Every word, in byte order. Raises ResourceLimit if there are more than `cap`.")
      .def(
          "any_length_between",
          [](const AutomatonPtr& a, uint64_t low, uint64_t high, std::optional<State> state) {
            return length_oracle(a)->any_between(state_or_start(*a, state), low, high);
          },
          py::arg("low"), py::arg("high"), py::arg("state") = py::none(),
          "True if some word from `state` has `low` to `high` characters.")
      .def_static("disjoint", &disjoint, py::arg("a"), py::arg("b"), py::arg("budget") = kSearchBudget,
                  "True if no text is in both. Raises ResourceLimit after visiting `budget` states.");
}

}  // namespace

void bind_regular(py::module_& m) {
  AutomatonClass automaton(m, "Automaton",
                           "A regular language over bytes, as a lazily determinised automaton.\n\n"
                           "States are integers; every state can reach an accepting one. `None` is the dead state.");
  bind_languages(automaton);
  bind_operations(automaton);
  bind_states(automaton);
  bind_questions(automaton);
}

}  // namespace constrain
