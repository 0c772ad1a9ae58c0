// JSON numbers within bounds, as automata over their spelling.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/automata/automaton.h"

namespace constrain {

/// An exact decimal: (negative ? -1 : 1) * digits * 10^exponent; `digits` has neither leading nor trailing zeros ("" is
/// zero).
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  static Decimal parse(std::string_view json_number);
  bool is_integer() const { return digits.empty() || exponent >= 0; }
};
int compare(const Decimal& a, const Decimal& b);
bool operator==(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool exclusive = false;
  bool operator==(const Bound&) const = default;
};

struct NumberRange {
  bool integer = false;  ///< only integers, written without exponent, and with no fraction but `.0`
  /// Integers of more digits are written without `.0`, for programs that read it as a float; 0 in draft 4.
  uint32_t max_digits_with_point = 15;
  std::optional<Bound> lower, upper;
  std::vector<Decimal> multiples_of;  ///< positive; the number is a multiple of each
  /// Positive; the number is a multiple of none. Only for integers and multiples.
  std::vector<Decimal> not_multiples_of;
  uint32_t max_integer_digits = 30, max_fraction_digits = 30,
           max_exponent = 308;  ///< limits on digits, so that models cannot write digits without end
  /// Digits of a number with a fraction that is no multiple of others, where bounds do not ask for more: doubles keep
  /// that many, so that no reader takes it for a multiple.
  std::optional<uint32_t> max_digits;
  /// Only plain decimals, of no more digits than multiples of a number with this many fraction digits may have.
  std::optional<uint32_t> plain_scale;
  bool operator==(const NumberRange&) const = default;
};

/// Spellings of the numbers in a range. Plain decimals always; exponents only with a normalised mantissa
/// (`d(.d+)?[eE][+-]?d+`) and never together with multiples. `-0` is not written for integers.
AutomatonPtr number_language(const NumberRange& range);

/// Spellings of one number, for `const` and `enum`; integers as in NumberRange, but with `.0` also if they are long, as
/// long as a double is exact.
AutomatonPtr number_literal(const Decimal& value, uint32_t max_digits_with_point = NumberRange().max_digits_with_point);

}  // namespace constrain
