#include "engine/automata/numbers/number_bounds.h"

#include "engine/base/errors.h"

namespace constrain {

namespace {

Bound negated(Bound bound) {
  if (!bound.value.digits.empty()) bound.value.negative = !bound.value.negative;
  return bound;
}

/// A lower bound of |x| below zero, or inclusive at zero, is no restriction.
std::optional<Bound> useful_lower(std::optional<Bound> bound) {
  if (!bound || bound->value.negative) return std::nullopt;
  if (bound->value.digits.empty() && !bound->exclusive) return std::nullopt;
  return bound;
}

Order if_equal(Order order, Order otherwise) { return order == Order::equal ? otherwise : order; }

}  // namespace

std::optional<MagnitudeRange> magnitude_range(const NumberRange& range, bool negative) {
  std::optional<Bound> lower = range.lower, upper = range.upper;
  if (negative) {
    std::swap(lower, upper);
    if (lower) lower = negated(*lower);
    if (upper) upper = negated(*upper);
  }
  if (upper && upper->value.negative) return std::nullopt;
  return MagnitudeRange{useful_lower(lower), upper};
}

PlainDigits plain_digits(const Decimal& value) {
  const auto count = static_cast<int64_t>(value.digits.size());
  const int64_t point = count + value.exponent;  // digits before the decimal point, if there are any
  if (point > kMaxPlainDigits || value.exponent < -kMaxPlainDigits || count > kMaxPlainDigits) {
    throw ResourceLimit("number_digits", kMaxPlainDigits, "while spelling out a number");
  }
  if (point <= 0) return {"0", value.digits.empty() ? "" : std::string(-point, '0') + value.digits};
  if (point >= count) return {value.digits + std::string(value.exponent, '0'), ""};
  return {value.digits.substr(0, point), value.digits.substr(point)};
}

PlainBound::PlainBound(const Bound& bound) : exclusive(bound.exclusive) {
  PlainDigits digits = plain_digits(bound.value);
  integer = std::move(digits.integer);
  fraction = std::move(digits.fraction);
}

Order PlainBound::after_integer_digit(Order order, size_t count, char digit) const {
  return count < integer.size() ? if_equal(order, order_of(digit, integer[count])) : order;
}

Order PlainBound::after_integer(Order order, size_t count) const {
  if (count != integer.size()) return count < integer.size() ? Order::less : Order::greater;
  return order;
}

Order PlainBound::after_fraction_digit(Order order, size_t count, char digit) const {
  return if_equal(order, order_of(digit, count < fraction.size() ? fraction[count] : '0'));
}

Order PlainBound::at_end(Order order, size_t count) const {
  return count < fraction.size() ? if_equal(order, Order::less) : order;
}

ScientificBound::ScientificBound(const Bound& bound)
    : digits(bound.value.digits),
      exponent(bound.value.exponent + static_cast<int64_t>(digits.size()) - 1),
      exclusive(bound.exclusive) {}

Order ScientificBound::after_digit(Order order, size_t count, char digit) const {
  return if_equal(order, order_of(digit, count < digits.size() ? digits[count] : '0'));
}

Order ScientificBound::at_end(Order order, size_t count, int64_t number_exponent) const {
  if (digits.empty()) return Order::greater;
  if (number_exponent != exponent) return number_exponent < exponent ? Order::less : Order::greater;
  return count < digits.size() ? if_equal(order, Order::less) : order;
}

}  // namespace constrain
