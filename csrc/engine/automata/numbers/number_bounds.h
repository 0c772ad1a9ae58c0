// Bounds of a number range as digit strings, which spellings are compared with from left to right.
#pragma once

#include <optional>
#include <string>

#include "engine/automata/numbers/numbers.h"

namespace constrain {

/// Comparison of the part of a number so far with the same part of a bound.
enum class Order : uint32_t { less, equal, greater };

inline Order order_of(char a, char b) { return a < b ? Order::less : a > b ? Order::greater : Order::equal; }

/// Bounds of |x|, for one sign of x.
struct MagnitudeRange {
  std::optional<Bound> lower, upper;
};

/// Bounds of |x| for x of the given sign in `range`; nullopt if there is no such x. Zero has both signs.
std::optional<MagnitudeRange> magnitude_range(const NumberRange& range, bool negative);

/// A bound of |x| in plain spelling: integer digits without leading zeros (except "0"), and fraction digits.
struct PlainBound {
  explicit PlainBound(const Bound& bound);

  std::string integer, fraction;
  bool exclusive;

  /// Updates the comparison by an integer digit; `count` digits came before it.
  Order after_integer_digit(Order order, size_t count, char digit) const;
  /// Completes the comparison of integer parts, of `count` digits.
  Order after_integer(Order order, size_t count) const;
  Order after_fraction_digit(Order order, size_t count, char digit) const;
  /// Completes the comparison at the end of the number, after `count` fraction digits.
  Order at_end(Order order, size_t count) const;
};

/// A bound of |x| as one digit, more digits, and a power of ten: d.ddd * 10^exponent. Zero has no digits.
struct ScientificBound {
  explicit ScientificBound(const Bound& bound);

  std::string digits;
  int64_t exponent;
  bool exclusive;

  Order after_digit(Order order, size_t count, char digit) const;
  Order at_end(Order order, size_t count, int64_t number_exponent) const;
};

/// Largest power of ten that is written out.
inline constexpr int64_t kMaxPlainDigits = 1000;

/// Integer and fraction digits of the plain spelling of |value|. Throws ResourceLimit beyond kMaxPlainDigits.
struct PlainDigits {
  std::string integer, fraction;
};
PlainDigits plain_digits(const Decimal& value);

}  // namespace constrain
