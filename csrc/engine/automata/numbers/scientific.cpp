#include "engine/automata/numbers/scientific.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/automata/lazy.h"
#include "engine/automata/numbers/number_bounds.h"
#include "engine/base/interner.h"

namespace constrain {

namespace {

struct Side {
  std::optional<ScientificBound> lower, upper;
};

std::optional<Side> make_side(const NumberRange& range, bool negative) {
  const auto bounds = magnitude_range(range, negative);
  if (!bounds) return std::nullopt;
  Bound upper = {Decimal::parse("1.7976931348623157e308")};  // the largest finite double
  if (bounds->upper && compare(bounds->upper->value, upper.value) <= 0) upper = *bounds->upper;
  Side side;
  if (bounds->lower) side.lower.emplace(*bounds->lower);
  side.upper.emplace(upper);
  return side;
}

class ScientificNumber : public PrunedAutomaton {
 public:
  explicit ScientificNumber(const NumberRange& range)
      : PrunedAutomaton(kSearchBudget),
        max_fraction_(range.max_fraction_digits),
        max_exponent_(range.max_exponent),
        max_exponent_digits_(std::to_string(range.max_exponent).size()),
        sides_{make_side(range, false), make_side(range, true)} {}

  bool accepting(State state) override {
    const Place at = place(state);
    return at.phase == kExponent && fits(at, at.exponent_negative ? -int64_t{at.exponent} : int64_t{at.exponent});
  }

 private:
  enum Phase : uint32_t { kStart, kMinus, kFirst, kPoint, kFraction, kE, kSign, kExponent };

  struct Place {
    uint32_t phase = kStart;
    uint32_t negative = 0;
    uint32_t digits = 0;  // digits of the mantissa
    Order lower = Order::equal, upper = Order::equal;
    uint32_t exponent_negative = 0, exponent = 0, exponent_digits = 0;
  };

  State name(const Place& at) {
    return states_.intern(std::array{at.phase, at.negative, at.digits, static_cast<uint32_t>(at.lower),
                                     static_cast<uint32_t>(at.upper), at.exponent_negative, at.exponent,
                                     at.exponent_digits});
  }

  Place place(State state) const {
    const auto key = states_[state];
    return {key[0], key[1], key[2], static_cast<Order>(key[3]), static_cast<Order>(key[4]), key[5], key[6], key[7]};
  }

  State raw_start() override { return name({}); }

  /// True if the number with this mantissa and exponent is within the bounds.
  bool fits(const Place& at, int64_t exponent) const {
    const Side& side = *sides_[at.negative];
    return within(side.lower, at.lower, at.digits, exponent, Order::greater) &&
           within(side.upper, at.upper, at.digits, exponent, Order::less);
  }

  /// First and last exponent.
  using Exponents = std::pair<int64_t, int64_t>;

  /// Exponents within the bounds for a complete mantissa; they are next to those of the bounds.
  Exponents fitting(const Place& at) const {
    const Side& side = *sides_[at.negative];
    const auto limit = int64_t{max_exponent_};
    const auto meets = [&](const std::optional<ScientificBound>& bound, Order order, Order wanted, int64_t exponent) {
      return within(bound, order, at.digits, exponent, wanted);
    };
    int64_t first = -limit, last = limit;
    if (side.lower && !side.lower->digits.empty()) {
      first = std::max(first, side.lower->exponent - 1);
      while (first <= limit && !meets(side.lower, at.lower, Order::greater, first)) ++first;
    }
    if (side.upper->digits.empty()) return {1, 0};
    last = std::min(last, side.upper->exponent + 1);
    while (last >= first && !meets(side.upper, at.upper, Order::less, last)) --last;
    return {first, last};
  }

  /// True if some exponent from `first` to `last`, with the sign of the place, is within the bounds.
  bool meets(const Place& at, const Exponents& fitting, int64_t first, int64_t last) const {
    last = std::min<int64_t>(last, max_exponent_);
    if (first > last) return false;
    return at.exponent_negative ? -last <= fitting.second && fitting.first <= -first
                                : first <= fitting.second && fitting.first <= last;
  }

  Verdict glance(State state) override {
    const Place at = place(state);
    if (at.phase < kFirst || at.phase == kPoint) return Verdict::unknown;
    const Exponents some = fitting(at);
    if (at.phase == kFirst || at.phase == kFraction)
      return some.first <= some.second ? Verdict::live : Verdict::unknown;
    const auto verdict = [](bool live) { return live ? Verdict::live : Verdict::dead; };
    if (at.phase == kE) return verdict(some.first <= some.second);
    if (at.phase == kSign) return verdict(meets(at, some, 0, max_exponent_));
    // The digits that may still follow.
    int64_t first = at.exponent, count = 1;
    for (size_t digits = at.exponent_digits; digits <= max_exponent_digits_; ++digits) {
      if (meets(at, some, first, first + count - 1)) return Verdict::live;
      first *= 10, count *= 10;
    }
    return Verdict::dead;
  }

  void fill_row(State state, Transitions& row) override {
    const Place at = place(state);
    for (char digit = '0'; digit <= '9'; ++digit) row.set(digit, after_digit(at, digit));
    auto moved = [&](Phase phase) {
      Place next = at;
      next.phase = phase;
      return next;
    };
    if (at.phase == kStart && sides_[1]) row.set('-', name({.phase = kMinus, .negative = 1}));
    if (at.phase == kFirst && max_fraction_ > 0) row.set('.', name(moved(kPoint)));
    if (at.phase == kFirst || at.phase == kFraction) {
      for (const char letter : {'e', 'E'}) row.set(letter, name(moved(kE)));
    }
    if (at.phase == kE) {
      Place next = moved(kSign);
      row.set('+', name(next));
      next.exponent_negative = 1;
      row.set('-', name(next));
    }
  }

  State after_digit(Place at, char digit) {
    switch (at.phase) {
      case kStart:
      case kMinus:
        return digit != '0' && sides_[at.negative] ? after_mantissa_digit(at, kFirst, digit) : kDead;
      case kPoint:
      case kFraction:
        return at.digits <= max_fraction_ ? after_mantissa_digit(at, kFraction, digit) : kDead;
      case kE:
      case kSign:
      case kExponent:
        at.phase = kExponent;
        at.exponent = at.exponent * 10 + static_cast<uint32_t>(digit - '0');
        ++at.exponent_digits;
        return at.exponent <= max_exponent_ && at.exponent_digits <= max_exponent_digits_ ? name(at) : kDead;
      default:
        return kDead;
    }
  }

  State after_mantissa_digit(Place at, Phase phase, char digit) {
    const Side& side = *sides_[at.negative];
    if (side.lower) at.lower = side.lower->after_digit(at.lower, at.digits, digit);
    at.upper = side.upper->after_digit(at.upper, at.digits, digit);
    at.phase = phase;
    ++at.digits;
    return name(at);
  }

  static bool within(const std::optional<ScientificBound>& bound, Order order, size_t digits, int64_t exponent,
                     Order wanted) {
    if (!bound) return true;
    order = bound->at_end(order, digits, exponent);
    return order == wanted || (order == Order::equal && !bound->exclusive);
  }

  uint32_t max_fraction_, max_exponent_;
  size_t max_exponent_digits_;
  std::array<std::optional<Side>, 2> sides_;
  SequenceInterner states_;
};

}  // namespace

AutomatonPtr scientific_numbers(const NumberRange& range) { return std::make_shared<ScientificNumber>(range); }

}  // namespace constrain
