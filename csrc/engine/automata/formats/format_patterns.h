// Formats as regular expressions, for formats.cpp. They name ASCII characters only where the standard does, so that all
// dialects agree on them.
#pragma once

#include <string>

namespace constrain::format_patterns {

// format_network.cpp
std::string ipv4();
std::string ipv6();
/// Labels of the domain of an address, in any normalisation, few and short enough that they fit once they are encoded.
std::string international_mail_labels();
std::string mail_local_part(bool international);
std::string mail_address_literal();

// format_uri.cpp
enum class Charset { uri, iri };
std::string absolute(Charset charset);            ///< URI or IRI
std::string relative_reference(Charset charset);  ///< without a scheme
std::string uri_template();

// format_time.cpp
std::string date(bool with_year_zero);
std::string time();        ///< without leap seconds
std::string loose_time();  ///< with a second 60 in any minute
/// Dates on which leap seconds are inserted, in UTC or the next.
std::string leap_day(bool next_day);
std::string duration();

}  // namespace constrain::format_patterns
