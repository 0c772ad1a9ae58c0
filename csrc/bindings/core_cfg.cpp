#include "bindings/core.h"
#include "engine/cfg.h"
#include "engine/deadline.h"
#include "engine/regex.h"

namespace constrain {

namespace {

/// A builder whose terminals count as memory of the grammar that it will make.
struct Builder : cfg::Builder {
  explicit Builder(const Limits& limits)
      : limits(limits), account(std::make_shared<MemoryAccount>(limits.max_memory)) {}
  Limits limits;
  std::shared_ptr<MemoryAccount> account;
};

}  // namespace

void bind_cfg(py::module_& module) {
  using namespace py::literals;
  py::class_<Builder>(module, "CfgBuilder")
      .def(py::init<const Limits&>(), "limits"_a)
      .def(
          "terminal",
          [](Builder& self, const std::string& pattern, std::string name) {
            const MemoryAccount::Scope scope(self.account);
            const PartialPattern terminal = compile_partial_regex(pattern);
            return self.terminal(terminal.language, std::move(name), terminal.watched);
          },
          "pattern"_a, "name"_a)
      .def(
          "ignore",
          [](Builder& self, const std::string& pattern, std::string name) {
            const MemoryAccount::Scope scope(self.account);
            self.ignore(compile_partial_regex(pattern).language, std::move(name));
          },
          "pattern"_a, "name"_a)
      .def("nonterminal", &cfg::Builder::nonterminal)
      .def("symbol", &Builder::symbol, "symbol"_a)
      .def("sequence", &Builder::sequence, "parts"_a)
      .def("choice", &Builder::choice, "parts"_a)
      .def("repeat", &Builder::repeat, "part"_a, "min"_a, "max"_a)
      .def("define", &Builder::define, "nonterminal"_a, "body"_a)
      .def(
          "compile",
          [](const Builder& self, cfg::Symbol start, std::shared_ptr<const Vocabulary> vocabulary) {
            const Deadline deadline(self.limits.max_seconds);
            const py::gil_scoped_release release;
            const MemoryAccount::Scope scope(self.account);
            return finish(self.build(start), std::move(vocabulary), self.limits);
          },
          "start"_a, "vocabulary"_a);
}

}  // namespace constrain
