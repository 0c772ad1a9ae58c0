// Multiples of decimals, as integers: with q = modulus / 10^scale, x is a multiple of q iff x * 10^scale is an integer
// multiple of `modulus`.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/automata/numbers/numbers.h"

namespace constrain {

struct Modulus {
  uint64_t modulus = 1;
  uint32_t scale = 0;

  /// Common multiples of all `steps` (and of 1, for integers). Throws ResourceLimit if they do not fit.
  static Modulus common(const std::vector<Decimal>& steps, bool integer);

  uint64_t after_digit(uint64_t remainder, char digit) const {
    return (remainder * 10 + static_cast<uint64_t>(digit - '0')) % modulus;
  }
  /// Remainder after `count` zeros.
  uint64_t after_zeros(uint64_t remainder, uint32_t count) const;

  bool divides(const Decimal& value) const;
};

}  // namespace constrain
