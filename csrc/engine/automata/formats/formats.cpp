#include "engine/automata/formats/formats.h"

#include <algorithm>
#include <array>

#include "engine/automata/formats/format_patterns.h"
#include "engine/automata/formats/host_name.h"
#include "engine/automata/formats/leap_seconds.h"
#include "engine/automata/regex/regex.h"
#include "engine/text/similar_name.h"

namespace constrain {

namespace {

using namespace format_patterns;

AutomatonPtr pattern(const std::string& text) {
  return compile_regex(text, {.dialect = Dialect::ecma, .classes = Classes::dialect});
}

AutomatonPtr make_time() { return unite({pattern(time()), leap_seconds(false), leap_seconds(true)}); }

AutomatonPtr make_date_time() {
  const auto leap = [](bool next_day) {
    return concatenate(pattern(leap_day(next_day) + "[Tt]"), leap_seconds(next_day));
  };
  return unite({pattern(date(false) + "[Tt]" + time()), leap(false), leap(true)});
}

AutomatonPtr at_most(int characters) { return pattern("[^]{0," + std::to_string(characters) + "}"); }

/// Removes labels with hyphens in third and fourth place, which mark encodings (`xn--`).
AutomatonPtr without_encoded_labels(AutomatonPtr names) {
  return subtract(std::move(names), pattern("(?:[^]*\\.)?[^.]{2}--[^]*"));
}

AutomatonPtr loose_hostname() { return pattern("[^\\x00-\\x20]{1,255}"); }

AutomatonPtr make_mail(bool international) {
  const AutomatonPtr local = intersect(pattern(mail_local_part(international) + "@"), at_most(65));
  std::vector<AutomatonPtr> domains = {intersect(host_names(false), at_most(180)), pattern(mail_address_literal())};
  if (international) domains.push_back(without_encoded_labels(pattern(international_mail_labels())));
  return concatenate(local, unite(std::move(domains)));
}

AutomatonPtr loose_mail() { return pattern("[^]*@[^]*"); }

std::string reference(Charset charset) { return absolute(charset) + "|" + relative_reference(charset); }

// RFC 6901, section 3.
const std::string kPointer = "(?:/(?:[^/~]|~[01])*)*";

/// Regular expressions of ECMA-262 without backreferences, with groups nested at most twice. As names of groups must
/// differ, only one is written.
AutomatonPtr make_regex() {
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
  return subtract(pattern("(?:" + term + "|[|^$])*"), several_names);
}

struct Entry {
  std::string_view name;
  AutomatonPtr (*inner)();
  AutomatonPtr (*outer)() = nullptr;  // null if the format is exact
  KnownLengths strings = {.farthest = 16};
};

constexpr Entry kFormats[] = {
    // RFC 3339 has a year 0, but many programs cannot represent it.
    {"date", [] { return pattern(date(false)); }, [] { return pattern(date(true)); }},
    {"time", make_time, [] { return pattern(loose_time()); }, {R"("00:00:00Z")", 16}},
    {"date-time",
     make_date_time,
     [] { return pattern(date(true) + "[Tt ]" + loose_time()); },
     {R"("0001-01-01T00:00:00Z")", 24}},
    {"duration", [] { return pattern(duration()); }},
    {"email", [] { return make_mail(false); }, loose_mail},
    {"idn-email", [] { return make_mail(true); }, loose_mail},
    {"hostname", [] { return host_names(false); }, loose_hostname},
    {"idn-hostname", [] { return host_names(true); }, loose_hostname},
    {"ipv4", [] { return pattern(ipv4()); }},
    {"ipv6", [] { return pattern(ipv6()); }, [] { return pattern(ipv6() + "(?:%[^]+)?"); }},
    {"uri", [] { return pattern(absolute(Charset::uri)); }},
    {"uri-reference", [] { return pattern(reference(Charset::uri)); }},
    {"iri", [] { return pattern(absolute(Charset::iri)); }},
    {"iri-reference", [] { return pattern(reference(Charset::iri)); }},
    {"uri-template", [] { return pattern(uri_template()); }, any_text},
    {"uuid",
     [] { return pattern("[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"); },
     nullptr,
     {.farthest = 40}},
    {"json-pointer", [] { return pattern(kPointer); }},
    {"relative-json-pointer", [] { return pattern("(?:0|[1-9][0-9]*)(?:#|" + kPointer + ")"); },
     [] { return pattern("[0-9]+(?:#|" + kPointer + ")"); }},
    {"regex", make_regex, any_text},
};

const Entry* find_entry(std::string_view name) {
  const auto entry = std::ranges::find(kFormats, name, &Entry::name);
  return entry == std::end(kFormats) ? nullptr : entry;
}

}  // namespace

KnownLengths string_lengths(std::string_view format) {
  const Entry* entry = find_entry(format);
  return entry ? entry->strings : KnownLengths();
}

std::string_view similar_format(std::string_view name) {
  std::array<std::string_view, std::size(kFormats)> names;
  std::ranges::transform(kFormats, names.begin(), &Entry::name);
  return similar_name(name, names);
}

std::optional<Format> find_format(std::string_view name) {
  const Entry* entry = find_entry(name);
  if (!entry) return std::nullopt;
  return Format{shared_automaton("inner " + std::string(name), entry->inner), !entry->outer};
}

AutomatonPtr outer_format(std::string_view name) {
  const Entry* entry = find_entry(name);
  if (!entry) return nullptr;
  if (!entry->outer) return find_format(name)->inner;
  return shared_automaton("outer " + std::string(name), entry->outer);
}

}  // namespace constrain
