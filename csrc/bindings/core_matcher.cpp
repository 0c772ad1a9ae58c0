#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "bindings/core.h"
#include "engine/matcher/matcher.h"

namespace constrain {

namespace {

[[noreturn]] void refuse(const std::string& reason) {
  const py::object type = py::module_::import("constrain.errors").attr("BitmaskError");
  PyErr_SetObject(type.ptr(), type(reason).ptr());
  throw py::error_already_set();
}

using Budget = std::optional<uint64_t>;

bool fill(const Matcher& matcher, const MaskRow& row, Budget budget) {
  const size_t words = matcher.grammar().vocabulary().mask_words();
  std::fill(row.data() + words, row.data() + row.words(), 0u);
  return matcher.fill(row.data(), budget);
}

/// Fills rows on several threads; each thread takes the next matcher.
void fill_all(const std::vector<const Matcher*>& matchers, const std::vector<std::unique_ptr<MaskRow>>& rows,
              const std::vector<Budget>& budgets, size_t threads) {
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < matchers.size(); i = next++) {
      try {
        fill(*matchers[i], *rows[i], budgets[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> pool;  // joined also where the system has no further thread
    for (size_t i = 1; i < std::min(threads, matchers.size()); ++i) pool.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

using MatcherClass = py::class_<Matcher>;

/// Calls a member function without the GIL.
std::string released(const Matcher& matcher, std::string (Matcher::*call)() const) {
  const py::gil_scoped_release release;
  return (matcher.*call)();
}

void bind_masks_of_matchers(MatcherClass& matcher) {
  using namespace py::literals;
  matcher
      .def(
          "fill_bitmask",
          [](const Matcher& self, const py::object& bits, Py_ssize_t row, Budget budget) {
            const MaskRow target(bits, row, self.grammar().vocabulary().mask_words());
            const py::gil_scoped_release release;
            return fill(self, target, budget);
          },
          "bits"_a, "row"_a = 0, "budget"_a = py::none(),
          R"(Writes the allowed tokens into a row of a bitmask, and returns True if any token is excluded.

Bit ``i % 32`` of word ``i // 32`` is 1 if token ``i`` is allowed. ``bits`` is a writable int32 buffer of shape (rows,
words) or (words,), such as a numpy array or a CPU tensor. With a ``budget``, the number of tokens that are left including
the end-of-sequence token, only tokens are allowed after which the text can still be completed within it; raises
:class:`constrain.errors.BudgetError` if it is less than ``min_tokens()``.)")
      .def(
          "mask_id", [](const Matcher& self) { return self.mask()->id; }, py::call_guard<py::gil_scoped_release>(),
          R"(Number of the set of tokens that ``fill_bitmask`` would write.

Equal sets of one vocabulary have one number while they are in use, and numbers are never reused, so that a copy of a mask
on a device can be cached under it.)")
      .def(
          "mask",
          [](const Matcher& self, Budget budget) -> std::shared_ptr<Mask> {
            const MaskPtr mask = budget ? self.mask(*budget) : self.mask();
            if (mask->count >= self.grammar().vocabulary().size()) return nullptr;
            return std::const_pointer_cast<Mask>(mask);
          },
          "budget"_a = py::none(), py::call_guard<py::gil_scoped_release>(),
          "The set of tokens that ``fill_bitmask`` would write; ``None`` if it excludes no token.");
}

// Copies of a matcher share a lock, and the holder may call the tokenizer, which is Python: whatever takes the lock
// must not hold the GIL while it waits.
void bind_steps(MatcherClass& matcher) {
  using namespace py::literals;
  matcher
      .def("accept", &Matcher::accept, "token"_a, py::call_guard<py::gil_scoped_release>(),
           "Accepts a token; returns False, without any change, if it is not allowed.")
      .def(
          "accept_bytes",
          [](Matcher& self, const py::bytes& bytes) {
            const std::string text(bytes);
            const py::gil_scoped_release release;
            return self.accept_bytes(text);
          },
          "bytes"_a, "Accepts bytes of text as one step; returns False, without any change, if they are not allowed.")
      .def("is_accepting", &Matcher::is_accepting, "True if the text may end here.")
      .def("is_finished", &Matcher::is_finished, py::call_guard<py::gil_scoped_release>(),
           "True if the text has ended, or can only end here.")
      .def(
          "rollback", [](Matcher& self, size_t count) { self.rollback(count); }, "count"_a,
          "Undoes the last ``count`` steps.")
      .def("reset", &Matcher::reset, "Goes back to the start of the text.")
      .def(
          "clone", [](const Matcher& self) { return Matcher(self); }, "A copy that advances independently.")
      .def_property_readonly("accepted_tokens", &Matcher::accepted_tokens, "Number of steps since the start.");
}

void bind_lookahead(MatcherClass& matcher) {
  using namespace py::literals;
  matcher
      .def("forced_tokens", &Matcher::forced_tokens, "limit"_a = 64, py::call_guard<py::gil_scoped_release>(),
           R"(The next tokens, at most ``limit``, as far as there is no choice.

These are the tokens that every tokenization of the forced bytes begins with, whatever follows them, so that accepting
them without asking the model gives a text as the model knows it. Empty if the tokenizer would have tokenized the text so
far in another way. Without a tokenizer, in a vocabulary made of tokens alone, tokens that are each the only one allowed.)")
      .def(
          "forced_bytes", [](const Matcher& self) { return py::bytes(released(self, &Matcher::forced_bytes)); },
          "The bytes that must come next; at most 256.")
      .def(
          "completion", [](const Matcher& self) { return py::bytes(released(self, &Matcher::completion)); },
          "The bytes of a shortest completion of the text.")
      .def("min_tokens", &Matcher::min_tokens, py::call_guard<py::gil_scoped_release>(),
           R"(Tokens that suffice to complete the text: the fewest for ``completion()``, and the end-of-sequence token.

0 after the end-of-sequence token. Raises :class:`constrain.errors.VocabularyError` if the completion is not
tokenizable.)")
      .def(
          "explain",
          [](const py::object& self, TokenId token) {
            return py::module_::import("constrain.engine.explain").attr("explain_token")(self, token);
          },
          "token"_a, "Why a token may not come next: a :class:`constrain.engine.TokenExplanation`.")
      .def(
          "alternatives",
          [](const py::object& self, const py::object& limit, const py::object& gap, bool json_value) {
            return py::module_::import("constrain.engine.alternatives")
                .attr("find_alternatives")(self, limit, gap, json_value);
          },
          "limit"_a = 64, "gap"_a = py::bytes(), "json_value"_a = false,
          R"(The texts that may come next, up to the end of the text, if they are at most ``limit``; ``None`` if they are more.

With ``json_value``, up to the end of the JSON value after ``gap``, the text before it. Returns
:class:`constrain.engine.Alternatives`, whose ``tree()`` has the tokens that tell them apart.)");
}

}  // namespace

MaskRow::MaskRow(const py::object& bits, Py_ssize_t row, size_t words) : MaskRow() {
  if (PyObject_CheckBuffer(bits.ptr())) {
    if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      refuse("a bitmask is a writable, C-contiguous buffer");
    }
    const char kind = buffer_.format ? buffer_.format[buffer_.format[0] == '<' || buffer_.format[0] == '='] : 'B';
    if (buffer_.itemsize != 4 || (kind != 'i' && kind != 'I' && kind != 'l' && kind != 'L'))
      refuse("a bitmask holds 32-bit integers");
    place(buffer_.buf, {buffer_.shape, buffer_.shape + buffer_.ndim}, row, words);
    return;
  }
  if (!py::hasattr(bits, "data_ptr")) refuse("a bitmask is a buffer of int32 or a CPU tensor");
  const std::string dtype = py::str(bits.attr("dtype"));
  if (dtype != "torch.int32") refuse("a bitmask holds int32, not " + dtype);
  const std::string device = py::str(bits.attr("device").attr("type"));
  if (device != "cpu") refuse("a bitmask is filled on the CPU, but this tensor is on " + device);
  if (!bits.attr("is_contiguous")().cast<bool>()) refuse("a bitmask is contiguous");
  place(reinterpret_cast<void*>(bits.attr("data_ptr")().cast<uintptr_t>()),
        bits.attr("shape").cast<std::vector<Py_ssize_t>>(), row, words);
}

void MaskRow::place(void* data, const std::vector<Py_ssize_t>& shape, Py_ssize_t row, size_t words) {
  if (shape.empty() || shape.size() > 2) refuse("a bitmask has one or two dimensions");
  const Py_ssize_t rows = shape.size() == 2 ? shape[0] : 1;
  words_ = static_cast<size_t>(shape.back());
  if (row < 0 || row >= rows)
    refuse("row " + std::to_string(row) + " is outside a bitmask of " + std::to_string(rows) + " rows");
  if (words_ < words) {
    refuse("a bitmask of " + std::to_string(words_) + " words a row is too narrow for this vocabulary, which needs " +
           std::to_string(words));
  }
  data_ = static_cast<uint32_t*>(data) + static_cast<size_t>(row) * words_;
}

MaskRow::~MaskRow() {
  if (buffer_.obj) PyBuffer_Release(&buffer_);
}

void bind_mask(py::module_& module) {
  using namespace py::literals;
  py::class_<Mask, std::shared_ptr<Mask>>(module, "Mask", "A set of tokens, which never changes.")
      .def_readonly("id", &Mask::id,
                    "Equal sets of one vocabulary that are in use at the same time have one number, and no number is "
                    "used for another set, so that a mask which was copied to a device can be named by it.")
      .def_readonly("count", &Mask::count, "Number of tokens.")
      .def_property_readonly(
          "tokens",
          [](const Mask& self) -> std::optional<std::vector<TokenId>> {
            if (self.many) return std::nullopt;
            std::vector<TokenId> tokens = self.tokens;
            std::ranges::sort(tokens);
            return tokens;
          },
          "The tokens in ascending order; ``None`` if they are many.")
      .def("__contains__", &Mask::has, "token"_a)
      .def(
          "fill",
          [](const Mask& self, const py::object& bits, Py_ssize_t row) {
            const size_t listed = self.tokens.empty() ? 0 : static_cast<size_t>(std::ranges::max(self.tokens)) / 32 + 1;
            const size_t words = self.many ? self.many->words.size() : listed;
            const MaskRow target(bits, row, words);
            self.write(target.data(), words);
            std::fill(target.data() + words, target.data() + target.words(), 0u);
          },
          "bits"_a, "row"_a = 0, "Writes the set into a row of a bitmask, as :meth:`Matcher.fill_bitmask` does.")
      .def(
          "mass",
          [](const py::object& self, const py::object& probabilities) {
            return py::module_::import("constrain.engine.bitmask").attr("mass")(self, probabilities);
          },
          "probabilities"_a,
          "The sum of the probabilities of the tokens; ``probabilities`` has one number for each token of the model.");
}

void bind_matcher(py::module_& module) {
  using namespace py::literals;
  bind_mask(module);
  MatcherClass matcher(module, "Matcher", "The parse state of one text, advanced token by token.");
  matcher.def(py::init([](const PyGrammar& grammar) { return Matcher(grammar.grammar); }), "grammar"_a)
      .def_property_readonly(
          "vocabulary", [](const Matcher& self) { return self.grammar().shared_vocabulary(); },
          "The vocabulary of the grammar.");
  bind_masks_of_matchers(matcher);
  bind_steps(matcher);
  bind_lookahead(matcher);

  module.def(
      "fill_bitmasks",
      [](const std::vector<const Matcher*>& matchers, const py::object& bits, const std::vector<Py_ssize_t>& rows,
         const std::vector<Budget>& budgets, size_t threads) {
        if (matchers.size() != rows.size()) throw py::value_error("as many rows as matchers are needed");
        if (matchers.size() != budgets.size()) throw py::value_error("as many budgets as matchers are needed");
        std::vector<std::unique_ptr<MaskRow>> targets;
        for (size_t i = 0; i < rows.size(); ++i) {
          if (!matchers[i]) throw py::type_error("None is no matcher");
          targets.push_back(std::make_unique<MaskRow>(bits, rows[i], matchers[i]->grammar().vocabulary().mask_words()));
        }
        const py::gil_scoped_release release;
        fill_all(matchers, targets, budgets, threads);
      },
      "matchers"_a, "bits"_a, "rows"_a, "budgets"_a, "threads"_a);
}

}  // namespace constrain
