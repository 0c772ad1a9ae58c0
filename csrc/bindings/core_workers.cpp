#include <optional>

#include "bindings/core.h"
#include "engine/base/workers.h"
#include "engine/matcher/matcher.h"

namespace constrain {

namespace {

using Budget = std::optional<uint64_t>;

/// A matcher's share of a batch: an optional token to accept, and the next mask.
struct Step {
  Matcher* matcher;
  std::optional<TokenId> token;
  Budget budget;
  bool taken = false;
  MaskPtr mask;

  /// Accepts the token and computes the mask, or changes nothing: the caller gets the error when it repeats the call.
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

/// Steps of some matchers, whose Python objects it keeps alive.
class BatchSteps {
 public:
  BatchSteps(Workers& workers, const py::list& matchers, const std::vector<std::optional<TokenId>>& tokens,
             const std::vector<Budget>& budgets)
      : matchers_(matchers) {
    if (matchers.size() != tokens.size()) throw py::value_error("as many tokens as matchers are needed");
    if (matchers.size() != budgets.size()) throw py::value_error("as many budgets as matchers are needed");
    for (size_t i = 0; i < tokens.size(); ++i)
      steps_.push_back({py::cast<Matcher*>(matchers[i]), tokens[i], budgets[i], false, nullptr});
    for (const Step& step : steps_) {
      if (!step.matcher) throw py::type_error("None is no matcher");
    }
    batch_ = workers.start(steps_.size(), [this](size_t i) { steps_[i].take(); });
  }

  ~BatchSteps() { finish(); }
  BatchSteps(const BatchSteps&) = delete;
  BatchSteps& operator=(const BatchSteps&) = delete;

  bool done(size_t place) const { return batch_->done(checked(place)); }

  std::pair<bool, std::shared_ptr<Mask>> result(size_t place) {
    const Step& step = steps_[checked(place)];
    if (!batch_->done(place)) {
      const py::gil_scoped_release release;
      batch_->wait_for(place);
    }
    const bool all = !step.taken || step.mask->count >= step.matcher->grammar().vocabulary().size();
    return {step.taken, all ? nullptr : std::const_pointer_cast<Mask>(step.mask)};
  }

 private:
  size_t checked(size_t place) const {
    if (place >= steps_.size()) throw py::index_error("there is no such matcher");
    return place;
  }

  void finish() {
    if (!batch_) return;
    const py::gil_scoped_release release;
    batch_->finish();
  }

  py::list matchers_;
  std::vector<Step> steps_;
  std::shared_ptr<Workers::Batch> batch_;
};

}  // namespace

void bind_workers(py::module_& module) {
  using namespace py::literals;
  py::class_<BatchSteps>(module, "Turns", "Steps of several matchers that run on a thread pool.")
      .def("done", &BatchSteps::done, "place"_a, "True if the step of a matcher is complete.")
      .def("result", &BatchSteps::result, "place"_a,
           R"(Waits for a matcher; returns whether it accepted its token, and the mask after it.

The mask is ``None`` if it excludes no token. If the step failed the matcher is unchanged, and raises the error when
called directly.)");
  py::class_<Workers>(module, "Workers", "A thread pool that runs without the interpreter's lock.")
      .def(py::init<size_t>(), "threads"_a)
      .def(
          "take",
          [](Workers& self, const py::list& matchers, const std::vector<std::optional<TokenId>>& tokens,
             const std::vector<Budget>& budgets) {
            return std::make_unique<BatchSteps>(self, matchers, tokens, budgets);
          },
          "matchers"_a, "tokens"_a, "budgets"_a, py::keep_alive<0, 1>(),
          R"(Accepts a token, or none for ``None``, in each of several different matchers, and computes their next masks.

``budgets`` are those of :meth:`Matcher.mask`, or ``None``. Returns at once; a matcher must not be used until
``result()`` has returned for it.)");
}

}  // namespace constrain
