#include <pybind11/native_enum.h>

#include <optional>

#include "bindings/core.h"
#include "engine/tokens/token_text.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

namespace {

/// Upper limit on token ids, against damaged files.
constexpr TokenId kMaxTokens = 1 << 24;

/// Reads the strings of a tokenizer in place, without copies.
std::vector<std::pair<TokenId, std::string_view>> read_pieces(const py::dict& pieces) {
  std::vector<std::pair<TokenId, std::string_view>> read;
  read.reserve(pieces.size());
  for (const auto& [piece, id] : pieces) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(piece.ptr(), &size);
    if (!text) throw py::error_already_set();
    read.emplace_back(id.cast<TokenId>(), std::string_view(text, static_cast<size_t>(size)));
  }
  return read;
}

/// Wraps a Python function for calls from any thread.
Vocabulary::Encode encode_with(py::function function) {
  const auto release = [](py::function* held) {
    const py::gil_scoped_acquire acquire;
    delete held;
  };
  return
      [held = std::shared_ptr<py::function>(new py::function(std::move(function)), release)](const std::string& text) {
        const py::gil_scoped_acquire acquire;
        return (*held)(py::str(text)).cast<std::vector<TokenId>>();
      };
}

std::shared_ptr<Vocabulary> from_pieces(const py::dict& pieces, TokenSpelling spelling,
                                        const std::vector<std::pair<TokenId, std::string>>& added,
                                        Vocabulary::SpecialTokens special, std::vector<TokenId> eos, size_t size,
                                        bool first_space_optional, py::function encode) {
  auto encoder = encode_with(std::move(encode));
  const auto read = read_pieces(pieces);
  const py::gil_scoped_release release;
  std::vector<std::string> tokens;
  const auto set = [&](TokenId id, std::string text) {
    if (id < 0 || id >= kMaxTokens) {
      throw std::invalid_argument(std::to_string(id) + " is no token id: ids are 0 to " +
                                  std::to_string(kMaxTokens - 1));
    }
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = std::move(text);
  };
  for (const auto& [id, piece] : read) set(id, token_text(piece, spelling));
  for (const auto& [id, text] : added) set(id, text);
  // A special token is never text, even if its id is also in the ordinary vocabulary.
  for (const auto& [id, name] : special) set(id, {});
  if (size == 0) size = tokens.size();
  return std::make_shared<Vocabulary>(std::move(tokens), std::move(eos), size, first_space_optional, std::move(encoder),
                                      std::move(special));
}

}  // namespace

void bind_vocabulary(py::module_& module) {
  using namespace py::literals;
  py::native_enum<TokenSpelling>(module, "TokenSpelling", "enum.Enum")
      .value("byte_level", TokenSpelling::byte_level)
      .value("sentence_piece", TokenSpelling::sentence_piece)
      .value("byte_fallback", TokenSpelling::byte_fallback)
      .finalize();

  py::class_<Vocabulary, std::shared_ptr<Vocabulary>>(module, "Vocabulary")
      .def(py::init([](const std::vector<py::bytes>& tokens, std::vector<TokenId> eos, size_t size,
                       bool first_space_optional, Vocabulary::SpecialTokens special,
                       std::optional<py::function> encode) {
             std::vector<std::string> texts(tokens.begin(), tokens.end());
             auto encoder = encode ? encode_with(*std::move(encode)) : Vocabulary::Encode();
             const py::gil_scoped_release release;
             return std::make_shared<Vocabulary>(std::move(texts), std::move(eos), size, first_space_optional,
                                                 std::move(encoder), std::move(special));
           }),
           "tokens"_a, "eos"_a, "size"_a, "first_space_optional"_a, "special"_a, "encode"_a = std::nullopt)
      .def_static("from_pieces", &from_pieces, py::kw_only(), "pieces"_a, "spelling"_a, "added"_a, "special"_a, "eos"_a,
                  "size"_a, "first_space_optional"_a, "encode"_a)
      .def_property_readonly("size", &Vocabulary::size)
      .def_property_readonly(
          "eos", [](const Vocabulary& self) { return std::vector<TokenId>(self.eos().begin(), self.eos().end()); })
      .def("bytes", [](const Vocabulary& self, TokenId token) { return py::bytes(std::string(self.bytes(token))); })
      .def("spelling",
           [](const Vocabulary& self, TokenId token) { return py::bytes(std::string(self.spelling(token))); })
      .def_property_readonly("special", &Vocabulary::special)
      .def_property_readonly("first_space_optional", &Vocabulary::first_space_optional)
      .def_property_readonly("missing_bytes", &Vocabulary::missing_bytes)
      .def_property_readonly("trie_nodes", [](const Vocabulary& self) { return self.trie().nodes(); });
}

}  // namespace constrain
