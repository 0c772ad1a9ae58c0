#include "engine/automata/formats/encoded_label.h"

#include "engine/automata/formats/punycode.h"

namespace constrain {

namespace {

/// The rest of a label whose first characters are letters beyond ASCII, and the others `basic`. That is a label,
/// wherever its hyphens are, unless the last character is one.
std::string rest_after(std::string_view basic) {
  std::u32string label = U"\u00FC\u00FC\u00FC";
  label.append(basic.begin(), basic.end());
  return encode_punycode(label).substr(basic.size());
}

bool is_complete(std::string_view text, LabelKinds kinds) {
  const auto kind = encoded_kind(text);
  return kind && (kinds & bit(*kind));
}

/// The shortest way to a label: what the text goes on with if its last hyphen, its end, or the end after another letter
/// is that of the ASCII characters.
std::string nearest_rest(std::string_view text) {
  std::string best = "a" + rest_after(std::string(text) + "a");
  const auto consider = [&](std::string rest) {
    if (rest.size() < best.size()) best = std::move(rest);
  };
  if (!text.empty() && text.back() != '-') consider(rest_after(text));
  const size_t hyphen = text.rfind('-');
  if (hyphen == std::string_view::npos || hyphen == 0 || text[hyphen - 1] == '-') return best;
  const std::string rest = rest_after(text.substr(0, hyphen));
  if (rest.starts_with(text.substr(hyphen))) consider(rest.substr(text.size() - hyphen));
  return best;
}

}  // namespace

std::optional<LabelKind> encoded_kind(std::string_view text) {
  const auto label = decode_punycode(text);
  if (!label) return std::nullopt;
  HostLabel read;
  for (const char32_t scalar : *label) {
    if (!read.read(scalar)) return std::nullopt;
  }
  if (!read.complete() || !read.international() || encode_punycode(*label) != text) return std::nullopt;
  return read.kind();
}

std::string encoded_rest(std::string_view text, LabelKinds kinds) {
  if (is_complete(text, kinds)) return "";
  if (text.size() <= kFreeEncoded) return nearest_rest(text);
  const std::string_view begin = text.substr(0, kFreeEncoded);
  return encoded_rest(begin, kinds).substr(text.size() - begin.size());
}

bool begins_encoded(std::string_view text, LabelKinds kinds) {
  if (text.size() <= kFreeEncoded) return true;
  const std::string_view begin = text.substr(0, kFreeEncoded);
  return (std::string(begin) + encoded_rest(begin, kinds)).starts_with(text);
}

}  // namespace constrain
