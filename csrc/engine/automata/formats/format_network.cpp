#include "engine/automata/formats/format_patterns.h"

namespace constrain::format_patterns {

std::string ipv4() {
  const std::string octet = "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
  return "(?:" + octet + "(?:\\." + octet + "){3})";
}

// RFC 3986, section 3.2.2.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last_two = "(?:" + group + ":" + group + "|" + ipv4() + ")";
  auto before = [&](int most) {
    return most == 0 ? std::string("(?:" + group + ")?")
                     : "(?:(?:" + group + ":){0," + std::to_string(most) + "}" + group + ")?";
  };
  auto after = [&](int count) { return "(?:" + group + ":){" + std::to_string(count) + "}"; };
  std::string forms = after(6) + last_two + "|::" + after(5) + last_two;
  for (int left = 0; left <= 3; ++left) forms += "|" + before(left) + "::" + after(4 - left) + last_two;
  forms += "|" + before(4) + "::" + last_two;
  forms += "|" + before(5) + "::" + group;
  forms += "|" + before(6) + "::";
  return "(?:" + forms + ")";
}

std::string international_mail_labels() {
  const std::string letters = "a-z0-9\\u00DF-\\u00F6\\u00F8-\\u00FF\\u0430-\\u044F\\u4E00-\\u9FA5\\uAC00-\\uD7A3";
  const std::string more = letters + "\\u0300-\\u036F";
  const std::string label = "[" + letters + "](?:[" + more + "-]{0,10}[" + more + "])?";
  return label + "(?:\\." + label + "){0,2}";
}

// RFC 5321, section 4.1.2.
std::string mail_local_part(bool international) {
  const std::string beyond = international ? "\\u0080-\\uD7FF\\uE000-\\u{10FFFF}" : "";
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + beyond + "-]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~" + beyond + "]|\\\\[ -~])*\"";
  return "(?:" + atom + "(?:\\." + atom + ")*|" + quoted + ")";
}

std::string mail_address_literal() { return "\\[(?:" + ipv4() + "|IPv6:" + ipv6() + ")\\]"; }

}  // namespace constrain::format_patterns
