// Borders of words.
#include "bindings/core.h"
#include "engine/json/word_borders.h"
#include "engine/text/utf8.h"

namespace constrain {

void bind_words(py::module_& module) {
  module.def(
      "word_borders",
      [](const std::string& text) {
        const std::vector<bool> borders = json::word_borders(decode_utf8(text));
        return py::bytes(std::string(borders.begin(), borders.end()));
      },
      py::arg("text"), "A byte for each position of a text, from 0 to its length: 1 if a word may begin or end there.");
}

}  // namespace constrain
