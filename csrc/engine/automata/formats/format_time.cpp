#include "engine/automata/formats/format_patterns.h"

namespace constrain::format_patterns {

namespace {

const std::string kHour = "(?:[01][0-9]|2[0-3])", kSixty = "[0-5][0-9]", kFraction = "(?:\\.[0-9]+)?";
const std::string kOffset = "(?:[Zz]|[+-]" + kHour + ":" + kSixty + ")";

}  // namespace

// RFC 3339, section 5.6, with the days that the months have.
std::string date(bool with_year_zero) {
  const std::string year = with_year_zero ? "[0-9]{4}" : "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})";
  const std::string fours = "(?:0[48]|[2468][048]|[13579][26])";  // multiples of 4 that are no multiples of 100
  const std::string leap_year = "(?:[0-9]{2}" + fours + "|" + fours + "00" + (with_year_zero ? "|0000" : "") + ")";
  const std::string long_month = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])";
  const std::string short_month = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)";
  const std::string february = "02-(?:0[1-9]|1[0-9]|2[0-8])";
  return "(?:" + year + "-(?:" + long_month + "|" + short_month + "|" + february + ")|" + leap_year + "-02-29)";
}

std::string time() { return kHour + ":" + kSixty + ":" + kSixty + kFraction + kOffset; }

std::string loose_time() { return kHour + ":" + kSixty + ":(?:" + kSixty + "|60)" + kFraction + kOffset; }

std::string leap_day(bool next_day) { return next_day ? "[0-9]{4}-(?:07-01|01-01)" : "[0-9]{4}-(?:06-30|12-31)"; }

// RFC 3339, appendix A.
std::string duration() {
  auto part = [](const char* unit, const std::string& rest) {
    return std::string("(?:[0-9]+") + unit + (rest.empty() ? ")" : "(?:" + rest + ")?)");
  };
  const std::string second = part("S", ""), minute = part("M", second), hour = part("H", minute);
  const std::string time = "T(?:" + hour + "|" + minute + "|" + second + ")";
  const std::string day = part("D", ""), month = part("M", day), year = part("Y", month);
  return "P(?:(?:" + day + "|" + month + "|" + year + ")(?:" + time + ")?|" + time + "|[0-9]+W)";
}

}  // namespace constrain::format_patterns
