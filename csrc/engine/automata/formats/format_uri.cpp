#include "engine/automata/formats/format_patterns.h"

namespace constrain::format_patterns {

namespace {

constexpr const char* kPercent = "%[0-9A-Fa-f]{2}";

// `ucschar` and `iprivate` of RFC 3987, section 2.2, for use in square brackets.
constexpr const char* kUcschar =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}"
    "\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}"
    "\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}"
    "\\u{E1000}-\\u{EFFFD}";
constexpr const char* kIprivate = "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

/// Rules of RFC 3986, appendix A, or RFC 3987, which has more letters.
class UriPatterns {
 public:
  explicit UriPatterns(Charset charset)
      : letters_(std::string("A-Za-z0-9._~!$&'()*+,;=") + (charset == Charset::iri ? kUcschar : "")),
        private_(charset == Charset::iri ? kIprivate : "") {}

  std::string absolute() const {
    return "[A-Za-z][A-Za-z0-9+.-]*:(?:" + after_scheme() + "|" + path_rootless() + ")?" + query_and_fragment();
  }

  std::string relative_reference() const {
    return "(?:" + after_scheme() + "|" + path_noscheme() + ")?" + query_and_fragment();
  }

 private:
  /// One character of the class, or a percent-encoded byte.
  std::string unit(const std::string& extra) const { return "(?:[" + letters_ + extra + "-]|" + kPercent + ")"; }

  std::string authority() const {
    const std::string future = "[Vv][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+";
    const std::string host = "(?:\\[(?:" + ipv6() + "|" + future + ")\\]|" + unit("") + "*)";
    return "(?:" + unit(":") + "*@)?" + host + "(?::[0-9]*)?";
  }

  std::string segment() const { return unit(":@"); }
  std::string more_segments() const { return "(?:/" + segment() + "*)*"; }
  std::string path_rootless() const { return segment() + "+" + more_segments(); }
  std::string path_noscheme() const { return unit("@") + "+" + more_segments(); }
  std::string after_scheme() const {
    return "//" + authority() + more_segments() + "|/(?:" + segment() + "+" + more_segments() + ")?";
  }
  std::string query_and_fragment() const {
    return "(?:\\?" + unit(":@/?" + private_) + "*)?(?:#" + unit(":@/?") + "*)?";
  }

  std::string letters_, private_;
};

}  // namespace

std::string absolute(Charset charset) { return UriPatterns(charset).absolute(); }

std::string relative_reference(Charset charset) { return UriPatterns(charset).relative_reference(); }

// RFC 6570, section 2.
std::string uri_template() {
  const std::string literal = std::string("(?:[!#$&-;=?-\\[\\]_a-z~") + kUcschar + kIprivate + "]|" + kPercent + ")";
  const std::string letter = std::string("(?:[A-Za-z0-9_]|") + kPercent + ")";
  const std::string variable = letter + "(?:\\.?" + letter + ")*(?::[1-9][0-9]{0,3}|\\*)?";
  return "(?:" + literal + "|\\{[+#./;?&]?" + variable + "(?:," + variable + ")*\\})*";
}

}  // namespace constrain::format_patterns
