#include "bindings/core.h"
#include "engine/vocabulary.h"

namespace constrain {

void bind_vocabulary(py::module_& module) {
  py::class_<Vocabulary, std::shared_ptr<Vocabulary>>(module, "Vocabulary")
      .def(py::init([](const std::vector<py::bytes>& tokens, std::vector<TokenId> eos, size_t size,
                       bool first_space_optional) {
             std::vector<std::string> texts(tokens.begin(), tokens.end());
             const py::gil_scoped_release release;
             return std::make_shared<Vocabulary>(std::move(texts), std::move(eos), size, first_space_optional);
           }),
           py::arg("tokens"), py::arg("eos"), py::arg("size"), py::arg("first_space_optional"))
      .def_property_readonly("size", &Vocabulary::size)
      .def_property_readonly(
          "eos", [](const Vocabulary& self) { return std::vector<TokenId>(self.eos().begin(), self.eos().end()); })
      .def("bytes", [](const Vocabulary& self, TokenId token) { return py::bytes(std::string(self.bytes(token))); })
      .def_property_readonly("missing_bytes", &Vocabulary::missing_bytes)
      .def_property_readonly("trie_nodes", [](const Vocabulary& self) { return self.trie().nodes(); });
}

}  // namespace constrain
