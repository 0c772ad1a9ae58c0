#include "engine/automata/formats/formats.h"

#include <algorithm>
#include <array>

#include "engine/automata/formats/format_patterns.h"
#include "engine/automata/formats/host_name.h"
#include "engine/automata/regex/regex.h"
#include "engine/text/similar_name.h"

namespace constrain {

namespace {

using namespace format_patterns;

AutomatonPtr pattern(const std::string& text) {
  return compile_regex(text, {.dialect = Dialect::ecma, .classes = Classes::dialect});
}

Format exact(AutomatonPtr language) { return {language, language}; }

// RFC 3339 has a year 0, but many programs cannot represent it.
Format make_date() { return {pattern(date(false)), pattern(date(true))}; }

Format make_time() {
  return {unite({pattern(time()), pattern(leap_second(false)), pattern(leap_second(true))}), pattern(loose_time())};
}

Format make_date_time() {
  const auto leap = [](bool next_day) { return pattern(leap_day(next_day) + "[Tt]" + leap_second(next_day)); };
  return {unite({pattern(date(false) + "[Tt]" + time()), leap(false), leap(true)}),
          pattern(date(true) + "[Tt ]" + loose_time())};
}

Format make_duration() { return exact(pattern(duration())); }

AutomatonPtr at_most(int characters) { return pattern("[^]{0," + std::to_string(characters) + "}"); }

/// Removes labels with hyphens in third and fourth place, which mark encodings (`xn--`).
AutomatonPtr without_encoded_labels(AutomatonPtr names) {
  return subtract(std::move(names), pattern("(?:[^]*\\.)?[^.]{2}--[^]*"));
}

AutomatonPtr loose_hostname() { return pattern("[^\\x00-\\x20]{1,255}"); }

Format make_hostname() { return {host_names(false), loose_hostname()}; }
Format make_idn_hostname() { return {host_names(true), loose_hostname()}; }

Format make_mail(bool international) {
  const AutomatonPtr local = intersect(pattern(mail_local_part(international) + "@"), at_most(65));
  std::vector<AutomatonPtr> domains = {intersect(host_names(false), at_most(180)), pattern(mail_address_literal())};
  if (international) domains.push_back(without_encoded_labels(pattern(international_mail_labels())));
  return {concatenate(local, unite(std::move(domains))), pattern("[^]*@[^]*")};
}

Format make_email() { return make_mail(false); }
Format make_idn_email() { return make_mail(true); }
Format make_ipv4() { return exact(pattern(ipv4())); }

Format make_ipv6() { return {pattern(ipv6()), pattern(ipv6() + "(?:%[^]+)?")}; }

Format make_uri() { return exact(pattern(absolute(Charset::uri))); }
Format make_iri() { return exact(pattern(absolute(Charset::iri))); }

Format make_uri_reference() { return exact(pattern(absolute(Charset::uri) + "|" + relative_reference(Charset::uri))); }

Format make_iri_reference() { return exact(pattern(absolute(Charset::iri) + "|" + relative_reference(Charset::iri))); }

Format make_uri_template() { return {pattern(uri_template()), any_text()}; }

Format make_uuid() {
  return exact(pattern("[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"));
}

// RFC 6901, section 3.
const std::string kPointer = "(?:/(?:[^/~]|~[01])*)*";

Format make_json_pointer() { return exact(pattern(kPointer)); }

Format make_relative_json_pointer() {
  return {pattern("(?:0|[1-9][0-9]*)(?:#|" + kPointer + ")"), pattern("[0-9]+(?:#|" + kPointer + ")")};
}

/// Regular expressions of ECMA-262 without backreferences, with groups nested at most twice. As names of groups must
/// differ, only one is written.
Format make_regex() {
  const std::string escape = "\\\\(?:[dDwWsSnrt]|c[A-Za-z]|[.*+?^$|()\\[\\]{}\\\\/])";
  const std::string member = "(?:[A-Za-z0-9 _.,:;@#!%*+?$()|/\"'<>=]|" + escape + ")";
  const std::string set = "\\[\\^?(?:" + member + "|0-9|a-z|A-Z)*\\]";
  const std::string quantifier = "(?:[*+?]\\??|\\{[1-9]\\}|\\{[1-9],\\})?";
  const std::string name = "\\?<[A-Za-z_$][A-Za-z0-9_$]*>";
  const std::string atom = "(?:[A-Za-z0-9 _,:;@#!%\"'<>=&~`-]|\\.|/|" + escape + "|" + set + ")";
  std::string term = atom + quantifier;
  for (int depth = 0; depth < 2; ++depth) {
    const std::string inside = "(?:" + term + "|[|])*\\)";
    const std::string group = "\\((?:\\?:|" + name + ")?" + inside + quantifier;
    const std::string assertion = "\\(\\?<?[=!]" + inside;
    term = "(?:" + atom + quantifier + "|" + group + "|" + assertion + ")";
  }
  const AutomatonPtr several_names = pattern("[^]*\\(" + name + "[^]*\\(" + name + "[^]*");
  return {subtract(pattern("(?:" + term + "|[|^$])*"), several_names), any_text()};
}

struct Entry {
  std::string_view name;
  Format (*make)();
  bool exact = false;
  KnownLengths strings = {.farthest = 16};
};

constexpr Entry kFormats[] = {
    {"date", make_date},
    {"time", make_time, false, {R"("00:00:00Z")", 16}},
    {"date-time", make_date_time, false, {R"("0001-01-01T00:00:00Z")", 24}},
    {"duration", make_duration, true},
    {"email", make_email},
    {"idn-email", make_idn_email},
    {"hostname", make_hostname},
    {"idn-hostname", make_idn_hostname},
    {"ipv4", make_ipv4, true},
    {"ipv6", make_ipv6},
    {"uri", make_uri, true},
    {"uri-reference", make_uri_reference, true},
    {"iri", make_iri, true},
    {"iri-reference", make_iri_reference, true},
    {"uri-template", make_uri_template},
    {"uuid", make_uuid, true, {.farthest = 40}},
    {"json-pointer", make_json_pointer, true},
    {"relative-json-pointer", make_relative_json_pointer},
    {"regex", make_regex},
};

}  // namespace

KnownLengths string_lengths(std::string_view format) {
  const auto entry = std::ranges::find(kFormats, format, &Entry::name);
  return entry == std::end(kFormats) ? KnownLengths() : entry->strings;
}

std::string_view similar_format(std::string_view name) {
  std::array<std::string_view, std::size(kFormats)> names;
  std::ranges::transform(kFormats, names.begin(), &Entry::name);
  return similar_name(name, names);
}

std::optional<Format> find_format(std::string_view name) {
  const auto entry = std::ranges::find(kFormats, name, &Entry::name);
  if (entry == std::end(kFormats)) return std::nullopt;
  std::optional<Format> made;
  const auto make = [&] {
    if (!made) made = entry->make();
    return *made;
  };
  const AutomatonPtr inner = shared_automaton("inner " + std::string(name), [&] { return make().inner; });
  if (entry->exact) return Format{inner, inner};
  return Format{inner, shared_automaton("outer " + std::string(name), [&] { return make().outer; })};
}

}  // namespace constrain
