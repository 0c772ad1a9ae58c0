#include <numeric>

#include "bindings/core.h"
#include "engine/automata/regex/regex.h"
#include "engine/base/deadline.h"
#include "engine/cfg/cfg.h"
#include "engine/json/source_text.h"
#include "engine/json/whole_words.h"
#include "engine/text/special_token.h"

namespace constrain {

namespace {

/// A builder whose terminals count towards the memory of the grammar.
struct Builder : cfg::Builder {
  Builder(const Limits& limits, py::function retrieve)
      : limits(limits), retrieve(std::move(retrieve)), account(std::make_shared<MemoryAccount>(limits.max_memory)) {}

  cfg::Symbol json_schema(const py::object& schema, const py::object& whitespace, bool in_order, bool plain_integers,
                          std::string name, cfg::Scope scope) {
    const Deadline deadline(limits.max_seconds);
    json::Tree value = to_json(schema, limits);
    const schema::Options options =
        schema_options(whitespace, in_order, plain_integers, false, true, limits, {}, retrieve);
    const py::gil_scoped_release release;
    const MemoryAccount::Scope accounting(account);
    const schema::Coverage coverage = schema::compile(std::move(value), options, embedded());
    const RuleId root = embedded().root;
    if (embedded().shortest_words()[root] == kInfinite) throw schema::conflict(coverage.schema(), options);
    schema::Report found = coverage.report();
    for (auto list : {&schema::Report::enforced, &schema::Report::narrowed, &schema::Report::ignored}) {
      for (schema::Report::Entry& entry : found.*list) {
        if (entry.place.document.empty()) entry.place.document = name;
        (report.*list).push_back(std::move(entry));
      }
    }
    return terminal(root, std::move(name), scope, schema::first_bytes());
  }

  /// Adds a rule for texts that a pattern matches as a whole; `flags` are letters of Python's flags.
  cfg::Symbol regex(const std::string& pattern, const std::string& flags, std::string name, cfg::Scope scope) {
    const Deadline deadline(limits.max_seconds);
    const py::gil_scoped_release release;
    const MemoryAccount::Scope accounting(account);
    const auto has = [&](char flag) { return flags.find(flag) != flags.npos; };
    const AutomatonPtr language = compile_regex(
        pattern, {.ignore_case = has('i'), .dot_all = has('s'), .multi_line = has('m'), .verbose = has('x')});
    return words(language, std::move(name), scope);
  }

  /// Adds a rule for the concatenations of successive chunks, none included.
  cfg::Symbol substring(const std::vector<std::string>& chunks, std::string name, cfg::Scope scope) {
    const Deadline deadline(limits.max_seconds);
    const py::gil_scoped_release release;
    const MemoryAccount::Scope accounting(account);
    json::check_source_size(std::accumulate(chunks.begin(), chunks.end(), std::string()));
    return words(json::whole_chunks_of(chunks), std::move(name), scope);
  }

  /// Adds a rule for the words of a language, which may have the empty one.
  cfg::Symbol words(const AutomatonPtr& language, std::string name, cfg::Scope scope) {
    const bool nullable = language->start() != kDead && language->accepting(language->start());
    const AutomatonPtr others = nullable ? subtract(language, literal_set({""})) : language;
    const cfg::Symbol rule = nonterminal();
    define(rule, repeat(symbol(terminal(others, std::move(name), scope)), nullable ? 0 : 1, 1));
    return rule;
  }

  /// Adds a terminal for a special token of that name, if the vocabulary has one.
  cfg::Symbol special(std::string token, std::string name, cfg::Scope scope) {
    const MemoryAccount::Scope accounting(account);
    const cfg::Symbol symbol = terminal(literal_set({special_spelling(token)}), std::move(name), scope);
    special_tokens.emplace_back(symbol, std::move(token));
    return symbol;
  }

  void check_special(const Vocabulary& vocabulary) {
    for (const auto& [symbol, token] : special_tokens) {
      const TokenId id = vocabulary.special_token(token);
      if (id == kNoToken) throw GrammarError("the vocabulary has no special token '" + token + "'");
      if (vocabulary.is_eos(id)) ends_text(symbol);
    }
  }

  Limits limits;
  py::function retrieve;
  std::vector<std::pair<cfg::Symbol, std::string>> special_tokens;
  std::shared_ptr<MemoryAccount> account;
  schema::Report report;
};

}  // namespace

void bind_cfg(py::module_& module) {
  using namespace py::literals;
  py::class_<Builder>(module, "CfgBuilder")
      .def(py::init<const Limits&, py::function>(), "limits"_a, "retrieve"_a)
      .def(
          "terminal",
          [](Builder& self, const std::string& pattern, std::string name, cfg::Scope scope) {
            const MemoryAccount::Scope accounting(self.account);
            const PartialPattern terminal = compile_partial_regex(pattern);
            return self.terminal(terminal.language, std::move(name), scope, terminal.watched);
          },
          "pattern"_a, "name"_a, "scope"_a = 0)
      .def(
          "ignore",
          [](Builder& self, const std::string& pattern, std::string name, cfg::Scope scope) {
            const MemoryAccount::Scope accounting(self.account);
            self.ignore(compile_partial_regex(pattern).language, std::move(name), scope);
          },
          "pattern"_a, "name"_a, "scope"_a = 0)
      .def("special", &Builder::special, "token"_a, "name"_a, "scope"_a = 0)
      .def("json_schema", &Builder::json_schema, "schema"_a, "whitespace"_a, "in_order"_a, "plain_integers"_a, "name"_a,
           "scope"_a = 0)
      .def("regex", &Builder::regex, "pattern"_a, "flags"_a, "name"_a, "scope"_a = 0)
      .def("substring", &Builder::substring, "chunks"_a, "name"_a, "scope"_a = 0)
      .def("scope", &Builder::scope, "name"_a)
      .def("start", &Builder::start, "scope"_a, "symbol"_a)
      .def("text", &Builder::text, "scope"_a, "within"_a, "name"_a)
      .def("nonterminal", &cfg::Builder::nonterminal)
      .def("symbol", &Builder::symbol, "symbol"_a)
      .def("sequence", &Builder::sequence, "parts"_a)
      .def("choice", &Builder::choice, "parts"_a)
      .def("repeat", &Builder::repeat, "part"_a, "min"_a, "max"_a)
      .def("define", &Builder::define, "nonterminal"_a, "body"_a)
      .def(
          "compile",
          [](Builder& self, cfg::Symbol start, std::shared_ptr<const Vocabulary> vocabulary) {
            const Deadline deadline(self.limits.max_seconds);
            const py::gil_scoped_release release;
            const MemoryAccount::Scope scope(self.account);
            self.check_special(*vocabulary);
            return finish(self.build(start), std::move(vocabulary), self.limits,
                          [report = self.report] { return report; });
          },
          "start"_a, "vocabulary"_a);
}

}  // namespace constrain
