#include "engine/automata/numbers/numbers.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "engine/automata/lazy.h"
#include "engine/automata/numbers/modulus.h"
#include "engine/automata/numbers/number_bounds.h"
#include "engine/automata/numbers/scientific.h"
#include "engine/base/errors.h"
#include "engine/base/interner.h"

namespace constrain {

namespace {

using Wide = unsigned __int128;
constexpr uint32_t kMaxWideDigits = 37;  // 10^37 < 2^127

/// Conditions on numbers of one sign.
struct Side {
  std::optional<PlainBound> lower, upper;
};

std::optional<Side> make_side(const NumberRange& range, bool negative) {
  const auto bounds = magnitude_range(range, negative);
  if (!bounds) return std::nullopt;
  Side side;
  if (bounds->lower) side.lower.emplace(*bounds->lower);
  if (bounds->upper) side.upper.emplace(*bounds->upper);
  return side;
}

/// Plain spellings `-?int(.frac)?`, compared with both bounds digit by digit.
class PlainNumber : public PrunedAutomaton {
 public:
  explicit PlainNumber(const NumberRange& range)
      : PrunedAutomaton(kSearchBudget),
        integer_(range.integer),
        max_integer_(range.max_integer_digits),
        max_fraction_(range.integer ? 1 : range.max_fraction_digits),
        max_digits_with_point_(range.integer ? range.max_digits_with_point : UINT32_MAX),
        max_digits_(range.max_digits),
        sides_{make_side(range, false), make_side(range, true)},
        stepped_(!range.multiples_of.empty() || !range.not_multiples_of.empty()),
        modulus_(Modulus::common(range.multiples_of, range.integer, range.not_multiples_of)) {
    make_room_for_bounds();
    limit_digits(stepped_ ? modulus_.scale : range.plain_scale);
  }

  bool accepting(State state) override {
    const Place at = place(state);
    if (at.phase != kZero && at.phase != kInteger && at.phase != kFraction) return false;
    const Place end = at.phase == kFraction ? at : without_integer(at);
    const Side& side = *sides_[at.negative];
    if (!modulus_.allows(modulus_.after_zeros(remainder(end), missing_digits(end)))) return false;
    return within(side.lower, end, end.lower, Order::greater) && within(side.upper, end, end.upper, Order::less);
  }

 private:
  enum Phase : uint32_t { kStart, kMinus, kZero, kInteger, kPoint, kFraction };

  struct Place {
    uint32_t phase = kStart;
    uint32_t negative = 0;
    uint32_t digits = 0;  // digits of the current part (integer or fraction)
    uint32_t before = 0;  // digits before the point, if digits of both parts are limited together
    Order lower = Order::equal, upper = Order::equal;
    uint32_t remainder_high = 0, remainder_low = 0;
  };

  static uint64_t remainder(const Place& at) { return uint64_t{at.remainder_high} << 32 | at.remainder_low; }

  static void set_remainder(Place& at, uint64_t value) {
    at.remainder_high = static_cast<uint32_t>(value >> 32);
    at.remainder_low = static_cast<uint32_t>(value);
  }

  State name(const Place& at) {
    return states_.intern(std::array{at.phase, at.negative, at.digits, at.before, static_cast<uint32_t>(at.lower),
                                     static_cast<uint32_t>(at.upper), at.remainder_high, at.remainder_low});
  }

  Place place(State state) const {
    const auto key = states_[state];
    return {key[0], key[1], key[2], key[3], static_cast<Order>(key[4]), static_cast<Order>(key[5]), key[6], key[7]};
  }

  /// Raises the limits on digits to those that the bounds need.
  void make_room_for_bounds() {
    size_t least_integer = kMaxPlainDigits;
    for (const auto& side : sides_) {
      if (!side) continue;
      least_integer = std::min(least_integer, side->lower ? side->lower->integer.size() : 1);
      for (const auto* bound : {&side->lower, &side->upper}) {
        if (!*bound || integer_) continue;
        max_fraction_ = std::max<uint32_t>(max_fraction_, (*bound)->fraction.size() + 1);
        if (max_digits_) {
          max_digits_ = std::max<uint32_t>(*max_digits_, (*bound)->integer.size() + (*bound)->fraction.size() + 1);
        }
      }
    }
    max_integer_ = std::max<uint32_t>(max_integer_, least_integer + 1);
    least_integer_ = least_integer;
    if (stepped_ && !integer_) max_fraction_ = std::max(max_fraction_, modulus_.scale);
  }

  /// Limits digits to those with which a multiple of a number with `scale` fraction digits is looked for.
  void limit_digits(std::optional<uint32_t> scale) {
    if (!scale) return;
    if (least_integer_ + *scale > kMaxWideDigits) {
      throw ResourceLimit("number_digits", kMaxWideDigits, "while combining multipleOf with bounds");
    }
    max_integer_ = std::min(max_integer_, kMaxWideDigits - *scale);
    if (!max_digits_) return;
    max_digits_ = std::max(*max_digits_, static_cast<uint32_t>(least_integer_) + *scale + 1);
    if (stepped_) max_integer_ = std::min(max_integer_, *max_digits_ - *scale);
  }

  State raw_start() override { return name({}); }

  void fill_row(State state, Transitions& row) override {
    const Place at = place(state);
    for (char digit = '0'; digit <= '9'; ++digit) row.set(digit, after_digit(at, digit));
    if (at.phase == kStart && sides_[1]) row.set('-', name({.phase = kMinus, .negative = 1}));
    const bool whole = at.phase == kZero || at.phase == kInteger;
    if (whole && max_fraction_ > 0 && at.digits <= max_digits_with_point_) row.set('.', name(without_integer(at)));
  }

  State after_digit(Place at, char digit) {
    switch (at.phase) {
      case kStart:
      case kMinus:
        if (!sides_[at.negative] || (integer_ && at.phase == kMinus && digit == '0')) return kDead;
        at.phase = digit == '0' ? kZero : kInteger;
        return after_integer_digit(at, digit);
      case kInteger:
        return at.digits < max_integer_ ? after_integer_digit(at, digit) : kDead;
      case kPoint:
      case kFraction:
        return at.digits < max_fraction_ && at.before + at.digits < max_digits_.value_or(UINT32_MAX)
                   ? after_fraction_digit(at, digit)
                   : kDead;
      default:
        return kDead;
    }
  }

  State after_integer_digit(Place at, char digit) {
    const Side& side = *sides_[at.negative];
    if (side.lower) at.lower = side.lower->after_integer_digit(at.lower, at.digits, digit);
    if (side.upper) at.upper = side.upper->after_integer_digit(at.upper, at.digits, digit);
    set_remainder(at, modulus_.after_digit(remainder(at), digit));
    ++at.digits;
    return name(at);
  }

  State after_fraction_digit(Place at, char digit) {
    const Side& side = *sides_[at.negative];
    if (side.lower) at.lower = side.lower->after_fraction_digit(at.lower, at.digits, digit);
    if (side.upper) at.upper = side.upper->after_fraction_digit(at.upper, at.digits, digit);
    const bool past_steps = stepped_ && at.digits >= modulus_.scale;
    if ((integer_ || past_steps) && digit != '0') return kDead;
    if (!past_steps) set_remainder(at, modulus_.after_digit(remainder(at), digit));
    at.phase = kFraction;
    ++at.digits;
    return name(at);
  }

  /// The place after the integer part.
  Place without_integer(Place at) const {
    const Side& side = *sides_[at.negative];
    if (side.lower) at.lower = side.lower->after_integer(at.lower, at.digits);
    if (side.upper) at.upper = side.upper->after_integer(at.upper, at.digits);
    at.before = max_digits_ && at.phase == kInteger ? at.digits : 0;
    at.phase = kPoint;
    at.digits = 0;
    return at;
  }

  static bool within(const std::optional<PlainBound>& bound, const Place& end, Order order, Order wanted) {
    if (!bound) return true;
    order = bound->at_end(order, end.digits);
    return order == wanted || (order == Order::equal && !bound->exclusive);
  }

  /// Fraction digits until the scaled number is complete.
  uint32_t missing_digits(const Place& at) const { return modulus_.scale - std::min(modulus_.scale, at.digits); }

  Verdict glance(State state) override {
    if (accepting(state)) return Verdict::live;
    const Place at = place(state);
    if (!stepped_ || at.phase == kStart || at.phase == kMinus) return Verdict::unknown;
    return multiple_ahead(at) ? Verdict::live : Verdict::dead;
  }

  /// True if some further digits complete a multiple within the bounds.
  bool multiple_ahead(const Place& at) const {
    if (at.phase == kPoint || at.phase == kFraction) return multiple_ahead(at, 0, missing_digits(at), at.digits);
    const uint32_t last = at.phase == kZero ? at.digits : max_integer_;
    for (uint32_t length = at.digits; length <= last; ++length) {
      Place end = at;
      end.digits = length;
      end = without_integer(end);
      if (multiple_ahead(end, length - at.digits, modulus_.scale, 0, at.digits)) return true;
    }
    return false;
  }

  /// True if exactly `integer_left` more integer digits and `fraction_left` fraction digits, after `fraction_read`
  /// ones, complete a multiple within the bounds.
  bool multiple_ahead(const Place& at, uint32_t integer_left, uint32_t fraction_left, uint32_t fraction_read,
                      uint32_t integer_read = 0) const {
    const Side& side = *sides_[at.negative];
    Wide first = 0, last = power_of_ten(integer_left + fraction_left) - 1;
    if (side.lower && at.lower == Order::less) return false;
    if (side.upper && at.upper == Order::greater) return false;
    auto digits_of = [&](const PlainBound& bound) {
      return tail_of(bound, integer_left, integer_read, fraction_left, fraction_read);
    };
    if (side.lower && at.lower == Order::equal) {
      const Tail tail = digits_of(*side.lower);
      first = tail.value + (tail.more || side.lower->exclusive ? 1 : 0);
    }
    if (side.upper && at.upper == Order::equal) {
      const Tail tail = digits_of(*side.upper);
      if (!tail.more && side.upper->exclusive) {
        if (tail.value == 0) return false;
        last = tail.value - 1;
      } else {
        last = tail.value;
      }
    }
    const uint64_t shifted = modulus_.after_zeros(remainder(at), integer_left + fraction_left);
    const uint64_t at_first = static_cast<uint64_t>((shifted + first) % modulus_.modulus);
    return first <= last && modulus_.allows_within(at_first, last - first);
  }

  struct Tail {
    Wide value;
    bool more;  // the bound has further nonzero digits
  };

  static Tail tail_of(const PlainBound& bound, uint32_t integer_left, uint32_t integer_read, uint32_t fraction_left,
                      uint32_t fraction_read) {
    Wide value = 0;
    for (uint32_t i = 0; i < integer_left; ++i) value = value * 10 + (bound.integer[integer_read + i] - '0');
    const size_t end = fraction_read + fraction_left;
    for (size_t i = fraction_read; i < end; ++i) {
      value = value * 10 + (i < bound.fraction.size() ? bound.fraction[i] - '0' : 0);
    }
    return {value, bound.fraction.size() > end};
  }

  static Wide power_of_ten(uint32_t exponent) {
    Wide power = 1;
    for (; exponent > 0; --exponent) power *= 10;
    return power;
  }

  bool integer_;
  uint32_t max_integer_, max_fraction_, max_digits_with_point_;
  std::optional<uint32_t> max_digits_;
  size_t least_integer_ = 0;                  // integer digits of the least numbers that some side allows
  std::array<std::optional<Side>, 2> sides_;  // conditions for x >= 0 and for x <= 0
  bool stepped_;
  Modulus modulus_;
  SequenceInterner states_;
};

}  // namespace

namespace {

/// True if a double has exactly this value.
bool is_double(const Decimal& value) {
  const PlainDigits digits = plain_digits(value);
  std::array<char, 2 * kMaxPlainDigits> text{};
  std::snprintf(text.data(), text.size(), "%.0f", std::strtod(digits.integer.c_str(), nullptr));
  return digits.integer == text.data();
}

}  // namespace

AutomatonPtr number_language(const NumberRange& range) {
  auto plain = std::make_shared<PlainNumber>(range);
  if (range.integer || !range.multiples_of.empty() || range.plain_scale) return plain;
  return unite({plain, scientific_numbers(range)});
}

AutomatonPtr number_literal(const Decimal& value, uint32_t max_digits_with_point) {
  NumberRange range;
  range.integer = value.is_integer();
  range.max_digits_with_point = max_digits_with_point > 0 && is_double(value) ? UINT32_MAX : max_digits_with_point;
  range.lower = range.upper = Bound{value, false};
  return number_language(range);
}

}  // namespace constrain
