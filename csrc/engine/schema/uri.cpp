#include "engine/schema/uri.h"

#include <cctype>

namespace constrain::schema {

namespace {

/// RFC 3986 section 3, without the fragment. Parts include the delimiter before them.
struct Parts {
  std::string_view scheme, authority, path, query;
};

std::string_view take(std::string_view& text, size_t length) {
  const std::string_view front = text.substr(0, length);
  text.remove_prefix(front.size());
  return front;
}

Parts split(std::string_view uri) {
  Parts parts;
  uri = uri.substr(0, uri.find('#'));
  const size_t colon = uri.find_first_of(":/?");
  if (colon != std::string_view::npos && uri[colon] == ':') parts.scheme = take(uri, colon + 1);
  if (uri.starts_with("//")) parts.authority = take(uri, uri.find_first_of("/?", 2));
  parts.path = take(uri, uri.find('?'));
  parts.query = uri;
  return parts;
}

/// RFC 3986 section 5.2.4.
std::string remove_dot_segments(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::string_view segment = take(path, path.find('/', 1));  // with its leading slash
    const bool last = path.empty();
    if (segment == "/.." || segment == "..") {
      out.erase(out.rfind('/') == std::string::npos ? 0 : out.rfind('/'));
    } else if (segment != "/." && segment != ".") {
      out += segment;
      continue;
    }
    if (last && segment.starts_with('/')) out += '/';
  }
  return out;
}

std::string text(std::string_view scheme, std::string_view authority, std::string_view path, std::string_view query) {
  std::string out(scheme);
  for (const std::string_view part : {authority, path, query}) out += part;
  return out;
}

}  // namespace

std::string join_uri(std::string_view base, std::string_view reference) {
  const Parts from = split(base), to = split(reference);
  if (!to.scheme.empty()) return text(to.scheme, to.authority, remove_dot_segments(to.path), to.query);
  if (!to.authority.empty()) return text(from.scheme, to.authority, remove_dot_segments(to.path), to.query);
  if (to.path.empty()) return text(from.scheme, from.authority, from.path, to.query.empty() ? from.query : to.query);
  if (to.path.starts_with('/')) return text(from.scheme, from.authority, remove_dot_segments(to.path), to.query);
  std::string merged(from.path.substr(0, from.path.rfind('/') + 1));
  if (merged.empty() && !from.authority.empty()) merged = "/";
  merged += to.path;
  return text(from.scheme, from.authority, remove_dot_segments(merged), to.query);
}

std::string percent_decode(std::string_view text) {
  const auto hex = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2])) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace constrain::schema
