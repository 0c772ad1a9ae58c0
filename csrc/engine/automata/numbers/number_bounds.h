// The two sides of a number range, as digit strings that a number's spelling can be compared with from left to right.
#pragma once

#include <optional>
#include <string>

#include "engine/automata/numbers/numbers.h"

namespace constrain {

/// How the part of a number read so far compares with the same part of a bound.
enum class Order : uint32_t { less, equal, greater };

inline Order order_of(char a, char b) { return a < b ? Order::less : a > b ? Order::greater : Order::equal; }

/// Bounds of |x|, for one sign of x.
struct MagnitudeRange {
  std::optional<Bound> lower, upper;
};

/// Bounds of |x| that `range` puts on x of the given sign; nullopt where there is no such x. Zero has both signs.
std::optional<MagnitudeRange> magnitude_range(const NumberRange& range, bool negative);

/// A bound of |x| in plain spelling: integer digits without leading zeros (except "0"), and fraction digits.
struct PlainBound {
  explicit PlainBound(const Bound& bound);

  std::string integer, fraction;
  bool exclusive;

  /// Compares the integer digits so far; `count` digits came before `digit`.
  Order after_integer_digit(Order order, size_t count, char digit) const;
  /// All integer digits are known, `count` of them.
  Order after_integer(Order order, size_t count) const;
  Order after_fraction_digit(Order order, size_t count, char digit) const;
  /// The number has ended, after `count` fraction digits.
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

/// Powers of ten beyond this are not spelled out.
inline constexpr int64_t kMaxPlainDigits = 1000;

/// Integer and fraction digits of the plain spelling of |value|. Throws ResourceLimit beyond kMaxPlainDigits.
struct PlainDigits {
  std::string integer, fraction;
};
PlainDigits plain_digits(const Decimal& value);

}  // namespace constrain
