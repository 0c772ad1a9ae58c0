#include <algorithm>
#include <stdexcept>

#include "engine/automata/numbers/numbers.h"

namespace constrain {

namespace {

/// Position of the first digit: 0.1 <= |value| / 10^magnitude < 1.
int64_t magnitude(const Decimal& value) { return value.exponent + static_cast<int64_t>(value.digits.size()); }

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.digits.empty() || b.digits.empty())
    return static_cast<int>(!a.digits.empty()) - static_cast<int>(!b.digits.empty());
  if (magnitude(a) != magnitude(b)) return magnitude(a) < magnitude(b) ? -1 : 1;
  const int order = a.digits.compare(b.digits);
  return (order > 0) - (order < 0);
}

class DecimalParser {
 public:
  explicit DecimalParser(std::string_view text) : rest_(text) {}

  Decimal parse() {
    Decimal value;
    value.negative = skip('-');
    take_digits(value.digits);
    if (skip('.')) value.exponent = -static_cast<int64_t>(take_digits(value.digits));
    if (skip('e') || skip('E')) value.exponent += parse_exponent();
    if (!rest_.empty()) fail();
    return normalised(std::move(value));
  }

 private:
  [[noreturn]] static void fail() { throw std::invalid_argument("not a JSON number"); }

  bool skip(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  size_t take_digits(std::string& digits) {
    const size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    if (count == 0) fail();
    digits.append(rest_.substr(0, count));
    rest_.remove_prefix(count);
    return count;
  }

  int64_t parse_exponent() {
    const bool negative = skip('-');
    if (!negative) skip('+');
    std::string digits;
    take_digits(digits);
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
    if (digits.size() > 15) throw std::invalid_argument("the exponent of a number is out of range");
    const int64_t exponent = std::stoll(digits);
    return negative ? -exponent : exponent;
  }

  static Decimal normalised(Decimal value) {
    value.digits.erase(0, std::min(value.digits.find_first_not_of('0'), value.digits.size()));
    while (!value.digits.empty() && value.digits.back() == '0') {
      value.digits.pop_back();
      ++value.exponent;
    }
    return value.digits.empty() ? Decimal{} : value;
  }

  std::string_view rest_;
};

}  // namespace

Decimal Decimal::parse(std::string_view json_number) { return DecimalParser(json_number).parse(); }

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

bool operator==(const Decimal& a, const Decimal& b) { return compare(a, b) == 0; }

}  // namespace constrain
