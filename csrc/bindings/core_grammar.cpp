#include "bindings/core.h"
#include "engine/automata/regex/regex.h"
#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/grammar/automaton_rule.h"
#include "engine/grammar/leading_space.h"

namespace constrain {

namespace {

PyGrammar finish_regular(const AutomatonPtr& automaton, std::shared_ptr<const Vocabulary> vocabulary,
                         const Limits& limits) {
  Grammar grammar;
  grammar.root = grammar.add(std::make_unique<AutomatonRule>(automaton));
  return finish(std::move(grammar), std::move(vocabulary), limits);
}

json::Whitespace whitespace_of(const py::object& policy) {
  using Mode = json::Whitespace::Mode;
  if (py::isinstance<py::int_>(policy)) {
    int overflow = 0;
    const long width = PyLong_AsLongAndOverflow(policy.ptr(), &overflow);
    if (overflow || width < 0 || width > 16) {
      throw GrammarError("indentation is 0 to 16 spaces, not " + std::string(py::str(policy)));
    }
    return {Mode::indent, static_cast<uint32_t>(width)};
  }
  static const std::pair<const char*, Mode> kModes[] = {
      {"compact", Mode::compact}, {"single", Mode::single}, {"bounded", Mode::bounded}, {"any", Mode::any}};
  const std::string name = py::str(policy);
  for (const auto& [label, mode] : kModes) {
    if (name == label) return {mode, 0};
  }
  throw GrammarError("there is no whitespace policy '" + name +
                     "'; there are compact, single, bounded, any, and a number of spaces to indent by");
}

std::vector<py::tuple> entries(const std::vector<schema::Report::Entry>& list) {
  std::vector<py::tuple> out;
  for (const auto& entry : list) {
    out.push_back(py::make_tuple(entry.place.pointer, entry.keyword, entry.note, entry.place.document));
  }
  return out;
}

/// Wraps the Python function that returns referenced documents.
schema::Retrieve retrieve_with(const py::function& retrieve, const Limits& limits) {
  return [&](const std::string& uri) -> std::optional<json::Tree> {
    const py::gil_scoped_acquire acquire;
    const py::object found = retrieve(uri);
    if (found.is_none()) return std::nullopt;
    try {
      return to_json(found, limits);
    } catch (SchemaError& error) {
      error.place.document = uri;
      throw;
    }
  };
}

}  // namespace

schema::Options schema_options(const py::object& whitespace, bool in_order, bool plain_integers, bool lenient,
                               bool asserts_formats, const Limits& limits, std::map<std::string, std::string> sources,
                               const py::function& retrieve) {
  const auto formats = asserts_formats ? schema::Formats::asserted : schema::Formats::dialect;
  return {whitespace_of(whitespace),      in_order, plain_integers, lenient, formats, limits, std::move(sources),
          retrieve_with(retrieve, limits)};
}

PyGrammar finish(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits,
                 std::function<schema::Report()> report) {
  if (vocabulary->first_space_optional()) allow_leading_space(grammar);
  return {std::make_shared<const CompiledGrammar>(std::move(grammar), std::move(vocabulary), limits),
          std::move(report)};
}

namespace {

void bind_limits(py::module_& module) {
  py::class_<Limits>(module, "Limits")
      .def(py::init([](uint64_t states, uint64_t depth, uint64_t frames, uint64_t work, uint64_t nesting,
                       uint64_t cells, uint64_t bytes, uint64_t seconds, uint64_t memory) {
             return Limits{.max_states = states,
                           .max_stack_depth = depth,
                           .max_frames = frames,
                           .max_work = work,
                           .max_nesting = nesting,
                           .max_cells = cells,
                           .max_bytes = bytes,
                           .max_seconds = seconds,
                           .max_memory = memory};
           }),
           py::kw_only(), py::arg("max_states"), py::arg("max_stack_depth"), py::arg("max_frames"), py::arg("max_work"),
           py::arg("max_nesting"), py::arg("max_cells"), py::arg("max_bytes"), py::arg("max_seconds"),
           py::arg("max_memory"));
}

void bind_compiled_grammar(py::module_& module) {
  py::class_<PyGrammar>(module, "CompiledGrammar")
      .def_property_readonly("vocabulary_size", [](const PyGrammar& self) { return self.grammar->vocabulary().size(); })
      .def_property_readonly("bytes", [](const PyGrammar& self) { return self.grammar->bytes(); })
      .def_property_readonly("states", [](const PyGrammar& self) { return self.grammar->states(); })
      .def_property_readonly(
          "counters",
          [](const PyGrammar& self) {
            const MaskCounters& counters = self.grammar->counters();
            py::dict out;
            out["masks_found"] = counters.found.load();
            out["masks_built"] = counters.built.load();
            out["frames_walked"] = counters.frame_tokens.load();
            out["nodes_visited"] = counters.visited.load();
            out["rows_built"] = self.grammar->rows();
            out["states"] = self.grammar->states();
            return out;
          },
          "Work done for masks so far, and cache hits.")
      .def_property_readonly("report", [](const PyGrammar& self) {
        const schema::Report report = self.report();
        return py::make_tuple(entries(report.enforced), entries(report.narrowed), entries(report.ignored));
      });
}

void bind_compilers(py::module_& module) {
  module.def(
      "compile_json_schema",
      [](const py::object& schema, std::shared_ptr<const Vocabulary> vocabulary, const py::object& whitespace,
         bool in_order, bool plain_integers, bool lenient, bool asserts_formats, const Limits& limits,
         const py::function& retrieve, std::map<std::string, std::string> sources) {
        const Deadline deadline(limits.max_seconds);
        json::Tree value = to_json(schema, limits);
        const schema::Options options = schema_options(whitespace, in_order, plain_integers, lenient, asserts_formats,
                                                       limits, std::move(sources), retrieve);
        const py::gil_scoped_release release;
        const MemoryAccount::Scope scope(std::make_shared<MemoryAccount>(limits.max_memory));
        Grammar grammar;
        const auto coverage =
            std::make_shared<const schema::Coverage>(schema::compile(std::move(value), options, grammar));
        try {
          return finish(std::move(grammar), std::move(vocabulary), limits, [coverage] { return coverage->report(); });
        } catch (const EmptyLanguage&) {
          throw schema::conflict(coverage->schema(), options);
        } catch (ResourceLimit& limit) {
          if (!limit.place) limit.place.emplace();  // the schema as a whole
          throw;
        }
      },
      py::arg("schema"), py::arg("vocabulary"), py::arg("whitespace"), py::arg("in_order"), py::arg("plain_integers"),
      py::arg("lenient"), py::arg("asserts_formats"), py::arg("limits"), py::arg("retrieve"), py::arg("sources"));

  module.def(
      "compile_regex",
      [](const std::string& pattern, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits) {
        const Deadline deadline(limits.max_seconds);
        const py::gil_scoped_release release;
        const MemoryAccount::Scope scope(std::make_shared<MemoryAccount>(limits.max_memory));
        return finish_regular(compile_regex(pattern, {}), std::move(vocabulary), limits);
      },
      py::arg("pattern"), py::arg("vocabulary"), py::arg("limits"));

  module.def(
      "compile_choices",
      [](const std::vector<std::string>& choices, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits) {
        const Deadline deadline(limits.max_seconds);
        const py::gil_scoped_release release;
        const MemoryAccount::Scope scope(std::make_shared<MemoryAccount>(limits.max_memory));
        return finish_regular(literal_set({choices.begin(), choices.end()}), std::move(vocabulary), limits);
      },
      py::arg("choices"), py::arg("vocabulary"), py::arg("limits"));
}

}  // namespace

void bind_grammar(py::module_& module) {
  bind_limits(module);
  bind_compiled_grammar(module);
  bind_compilers(module);
}

}  // namespace constrain
