#include "engine/automata/numbers/modulus.h"

#include <algorithm>
#include <numeric>

#include "engine/base/errors.h"

namespace constrain {

namespace {

constexpr uint64_t kMaxModulus = 1'000'000'000'000'000'000;  // ten times this plus a digit still fits in 64 bits
constexpr uint32_t kMaxScale = 30;

/// Number of consecutive multiples to try until one is excluded by no other divisor. Among 742 consecutive integers,
/// one is divisible by none of any 49 primes (Hagedorn, "Computation of Jacobsthal's function h(n) for n < 50", 2009).
constexpr int kMaxTries = 1024;

[[noreturn]] void too_fine() { throw ResourceLimit("modulus", kMaxModulus, "while combining multipleOf"); }

uint64_t checked_product(uint64_t a, uint64_t b) {
  if (b != 0 && a > kMaxModulus / b) too_fine();
  return a * b;
}

/// The least common multiple.
uint64_t multiple(uint64_t a, uint64_t b) { return checked_product(a / std::gcd(a, b), b); }

uint64_t scaled_to_integer(const Decimal& step, uint32_t scale) {
  if (step.digits.size() > 18) too_fine();
  uint64_t value = std::stoull(step.digits);
  for (int64_t zeros = step.exponent + scale; zeros > 0; --zeros) value = checked_product(value, 10);
  return value;
}

}  // namespace

Modulus Modulus::common(const std::vector<Decimal>& steps, bool integer, const std::vector<Decimal>& excluded) {
  int64_t scale = 0;
  for (const auto* list : {&steps, &excluded}) {
    for (const Decimal& each : *list) scale = std::max(scale, -each.exponent);
  }
  if (scale > kMaxScale) too_fine();
  Modulus result{.scale = static_cast<uint32_t>(scale)};
  for (const Decimal& step : steps) result.step = multiple(result.step, scaled_to_integer(step, result.scale));
  if (integer) result.step = multiple(result.step, scaled_to_integer({false, "1", 0}, result.scale));
  if (excluded.empty()) {
    for (; result.scale > 0 && result.step % 10 == 0; --result.scale) result.step /= 10;
  }
  result.modulus = result.step;
  for (const Decimal& each : excluded) {
    result.excluded.push_back(scaled_to_integer(each, result.scale));
    result.modulus = multiple(result.modulus, result.excluded.back());
  }
  return result;
}

bool Modulus::allows(uint64_t remainder) const {
  return remainder % step == 0 &&
         std::ranges::none_of(excluded, [&](uint64_t divisor) { return remainder % divisor == 0; });
}

bool Modulus::allows_within(uint64_t remainder, unsigned __int128 count) const {
  unsigned __int128 distance = (step - remainder % step) % step;
  uint64_t at = static_cast<uint64_t>((remainder + distance) % modulus);
  for (int tries = 0; tries < kMaxTries && distance <= count; ++tries) {
    if (allows(at)) return true;
    distance += step;
    at = (at + step) % modulus;
  }
  return false;
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
