#include "engine/automata/numbers/modulus.h"

#include <algorithm>
#include <numeric>

#include "engine/base/errors.h"

namespace constrain {

namespace {

constexpr uint64_t kMaxModulus = 1'000'000'000'000'000'000;  // ten times this plus a digit still fits in 64 bits
constexpr uint32_t kMaxScale = 30;

[[noreturn]] void too_fine() { throw ResourceLimit("modulus", kMaxModulus, "while combining multipleOf"); }

uint64_t checked_product(uint64_t a, uint64_t b) {
  if (b != 0 && a > kMaxModulus / b) too_fine();
  return a * b;
}

uint64_t scaled_to_integer(const Decimal& step, uint32_t scale) {
  if (step.digits.size() > 18) too_fine();
  uint64_t value = std::stoull(step.digits);
  for (int64_t zeros = step.exponent + scale; zeros > 0; --zeros) value = checked_product(value, 10);
  return value;
}

}  // namespace

Modulus Modulus::common(const std::vector<Decimal>& steps, bool integer) {
  int64_t scale = 0;
  for (const Decimal& step : steps) scale = std::max(scale, -step.exponent);
  if (scale > kMaxScale) too_fine();
  Modulus result{1, static_cast<uint32_t>(scale)};
  auto combine = [&](const Decimal& step) {
    const uint64_t value = scaled_to_integer(step, result.scale);
    result.modulus = checked_product(result.modulus / std::gcd(result.modulus, value), value);
  };
  for (const Decimal& step : steps) combine(step);
  if (integer) combine(Decimal{false, "1", 0});
  for (; result.scale > 0 && result.modulus % 10 == 0; --result.scale) result.modulus /= 10;
  return result;
}

uint64_t Modulus::after_zeros(uint64_t remainder, uint32_t count) const {
  for (; count > 0 && remainder != 0; --count) remainder = after_digit(remainder, '0');
  return remainder;
}

bool Modulus::divides(const Decimal& value) const {
  const int64_t zeros = value.exponent + scale;
  if (zeros < 0) return value.digits.empty();
  uint64_t remainder = 0;
  for (const char digit : value.digits) remainder = after_digit(remainder, digit);
  // After as many zeros as the modulus has bits, further zeros change nothing: all its factors of ten are used up.
  return after_zeros(remainder, static_cast<uint32_t>(std::min<int64_t>(zeros, 64))) == 0;
}

}  // namespace constrain
