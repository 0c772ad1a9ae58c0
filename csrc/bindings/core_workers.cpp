#include <optional>

#include "bindings/core.h"
#include "engine/base/workers.h"
#include "engine/matcher/matcher.h"

namespace constrain {

namespace {

using Budget = std::optional<uint64_t>;

/// One text of many that are taken on by a token, or by none.
struct Turn {
  Matcher* matcher;
  std::optional<TokenId> token;
  Budget budget;
  bool taken = false;
  MaskPtr mask;

  /// Does all or nothing: whoever asks the matcher for the same afterwards hears what went wrong.
  void take() {
    const size_t before = matcher->accepted_tokens();
    try {
      if (token && !matcher->accept(*token)) return;
      mask = budget ? matcher->mask(*budget) : matcher->mask();
      taken = true;
    } catch (...) {
      matcher->rollback(matcher->accepted_tokens() - before);
    }
  }
};

/// The turns of some matchers, whose Python objects it keeps.
class Turns {
 public:
  Turns(Workers& workers, const py::list& matchers, const std::vector<std::optional<TokenId>>& tokens,
        const std::vector<Budget>& budgets)
      : matchers_(matchers) {
    if (matchers.size() != tokens.size()) throw py::value_error("as many tokens as matchers are needed");
    if (matchers.size() != budgets.size()) throw py::value_error("as many budgets as matchers are needed");
    for (size_t i = 0; i < tokens.size(); ++i)
      turns_.push_back({py::cast<Matcher*>(matchers[i]), tokens[i], budgets[i], false, nullptr});
    for (const Turn& turn : turns_) {
      if (!turn.matcher) throw py::type_error("None is no matcher");
    }
    batch_ = workers.start(turns_.size(), [this](size_t i) { turns_[i].take(); });
  }

  ~Turns() { finish(); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  bool done(size_t place) const { return batch_->done(checked(place)); }

  std::pair<bool, std::shared_ptr<Mask>> result(size_t place) {
    const Turn& turn = turns_[checked(place)];
    if (!batch_->done(place)) {
      const py::gil_scoped_release release;
      batch_->wait_for(place);
    }
    const bool all = !turn.taken || turn.mask->count >= turn.matcher->grammar().vocabulary().size();
    return {turn.taken, all ? nullptr : std::const_pointer_cast<Mask>(turn.mask)};
  }

 private:
  size_t checked(size_t place) const {
    if (place >= turns_.size()) throw py::index_error("there is no such matcher");
    return place;
  }

  void finish() {
    if (!batch_) return;
    const py::gil_scoped_release release;
    batch_->finish();
  }

  py::list matchers_;
  std::vector<Turn> turns_;
  std::shared_ptr<Workers::Batch> batch_;
};

}  // namespace

void bind_workers(py::module_& module) {
  using namespace py::literals;
  py::class_<Turns>(module, "Turns", "Texts that are being taken on by a token each.")
      .def("done", &Turns::done, "place"_a, "Whether a matcher is done.")
      .def("result", &Turns::result, "place"_a,
           "Waits for a matcher; returns whether it has taken its token and found the mask behind it, and that mask, "
           "``None`` where it excludes nothing. Otherwise the matcher is where it was, and tells the reason when it is "
           "asked for the same by itself.");
  py::class_<Workers>(module, "Workers", "Threads that need no lock of the interpreter.")
      .def(py::init<size_t>(), "threads"_a)
      .def(
          "take",
          [](Workers& self, const py::list& matchers, const std::vector<std::optional<TokenId>>& tokens,
             const std::vector<Budget>& budgets) { return std::make_unique<Turns>(self, matchers, tokens, budgets); },
          "matchers"_a, "tokens"_a, "budgets"_a, py::keep_alive<0, 1>(),
          "Has each of several matchers, no two of which are the same, take a token, or none for ``None``, and find "
          "its mask behind it, with a budget or ``None``, see :meth:`Matcher.mask`. Does not wait; nobody else may use "
          "a matcher until ``result()`` has returned for it.");
}

}  // namespace constrain
