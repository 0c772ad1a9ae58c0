#include "engine/automata/formats/leap_seconds.h"

#include "engine/automata/lazy.h"

namespace constrain {

namespace {

/// Times, some with a fraction of the second. A state is one of the times without fractions, and where the fraction is.
class WithFractions : public LazyAutomaton {
 public:
  explicit WithFractions(AutomatonPtr times) : times_(std::move(times)) {}

  State start() override { return times_->start() * kPlaces; }
  bool accepting(State state) override { return state % kPlaces == kNone && times_->accepting(state / kPlaces); }

 private:
  enum Place : State { kNone, kPoint, kDigits, kPlaces };

  void fill_row(State state, Transitions& row) override {
    const State time = state / kPlaces;
    if (state % kPlaces != kPoint) {
      for_each_range(times_->row(time), [&](uint8_t first, uint8_t last, State to) {
        if (to != kDead) row.set(first, last, to * kPlaces);
      });
    }
    const bool after_seconds = row['Z'] != kDead || row['+'] != kDead || row['-'] != kDead;
    if (state % kPlaces != kNone) {
      row.set('0', '9', time * kPlaces + kDigits);
    } else if (after_seconds) {
      row.set('.', time * kPlaces + kPoint);
    }
  }

  AutomatonPtr times_;
};

/// `hh:mm` of a number of minutes.
std::string clock(int minutes) {
  const auto digit = [](int value) { return static_cast<char>('0' + value); };
  return {digit(minutes / 600), digit(minutes / 60 % 10), ':', digit(minutes % 60 / 10), digit(minutes % 10)};
}

}  // namespace

AutomatonPtr leap_seconds(bool next_day) {
  constexpr int kQuarter = 15, kDay = 24 * 60;  // minutes
  std::vector<std::string> times;
  for (int offset = kQuarter; offset < kDay; offset += kQuarter) {
    const int local = next_day ? offset - 1 : kDay - 1 - offset;
    times.push_back(clock(local) + ":60" + (next_day ? '+' : '-') + clock(offset));
  }
  if (!next_day) times.insert(times.end(), {"23:59:60Z", "23:59:60z", "23:59:60+00:00", "23:59:60-00:00"});
  return std::make_shared<WithFractions>(literal_set({times.begin(), times.end()}));
}

}  // namespace constrain
