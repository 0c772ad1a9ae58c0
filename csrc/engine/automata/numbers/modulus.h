// Multiples of decimals, as integers: with q = step / 10^scale, x is a multiple of q iff x * 10^scale is an integer
// multiple of `step`.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/automata/numbers/numbers.h"

namespace constrain {

struct Modulus {
  uint64_t modulus = 1;  ///< numbers with the same remainder are allowed or not alike
  uint32_t scale = 0;
  uint64_t step = 1;
  std::vector<uint64_t> excluded = {};  ///< multiples of these are not allowed

  /// Common multiples of all `steps` (and of 1, for integers) that are multiples of none of `excluded`. Throws
  /// ResourceLimit if they do not fit.
  static Modulus common(const std::vector<Decimal>& steps, bool integer, const std::vector<Decimal>& excluded = {});

  /// True if numbers with this remainder are allowed.
  bool allows(uint64_t remainder) const;
  /// True if one of the `count` + 1 numbers from one with this remainder on is allowed.
  bool allows_within(uint64_t remainder, unsigned __int128 count) const;

  uint64_t after_digit(uint64_t remainder, char digit) const {
    return (remainder * 10 + static_cast<uint64_t>(digit - '0')) % modulus;
  }
  /// Remainder after `count` zeros.
  uint64_t after_zeros(uint64_t remainder, uint32_t count) const;

  bool divides(const Decimal& value) const;
};

}  // namespace constrain
