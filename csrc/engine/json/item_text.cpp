#include "engine/json/item_text.h"

#include <algorithm>

#include "engine/automata/numbers/numbers.h"
#include "engine/text/utf8.h"

namespace constrain::json {

namespace {

bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

bool continues_number(char byte) {
  return (byte >= '0' && byte <= '9') || byte == '.' || byte == 'e' || byte == 'E' || byte == '+' || byte == '-';
}

std::string canonical_number(std::string_view text) {
  const Decimal number = Decimal::parse(text);
  if (number.digits.empty()) return "0";
  return (number.negative ? "-" : "") + number.digits + "e" + std::to_string(number.exponent);
}

std::string canonical_plain(const std::string& text) {
  const bool is_word = text[0] == 't' || text[0] == 'f' || text[0] == 'n';
  return is_word ? text : canonical_number(text);
}

char32_t unit(std::string_view digits) {
  return static_cast<char32_t>(std::stoul(std::string(digits.substr(0, 4)), nullptr, 16));
}

bool is_high_surrogate(char32_t unit) { return unit >= kFirstSurrogate && unit < kFirstLowSurrogate; }

/// Matches `\n`, `\u000a`, or a pair of surrogates.
bool is_complete(std::string_view escape) {
  if (escape.size() < 2 || escape[1] != 'u') return escape.size() == 2;
  if (escape.size() < 6) return false;
  return !is_high_surrogate(unit(escape.substr(2))) || escape.size() == 12;
}

void append_unescaped(std::string& out, std::string_view escape) {
  constexpr std::string_view kLetters = "bfnrt", kBytes = "\b\f\n\r\t";
  const char letter = escape[1];
  if (letter == 'u') {
    char32_t scalar = unit(escape.substr(2));
    if (is_high_surrogate(scalar)) {
      scalar = 0x10000 + ((scalar - kFirstSurrogate) << 10) + (unit(escape.substr(8)) - kFirstLowSurrogate);
    }
    if (scalar == '"' || scalar == '\\') out += '\\';
    append_utf8(out, scalar);
  } else if (letter == '"' || letter == '\\') {
    out += escape;
  } else {
    const size_t at = kLetters.find(letter);
    out += at == std::string_view::npos ? letter : kBytes[at];
  }
}

/// Length of the canonical value at the start of a text.
size_t value_length(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (in_string) {
      if (byte == '\\') {
        ++i;
      } else if (byte == '"') {
        in_string = false;
      }
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '[' || byte == '{') {
      ++depth;
    } else if (byte == ']' || byte == '}') {
      if (depth == 0) return i;
      --depth;
    } else if ((byte == ',' || byte == ':') && depth == 0) {
      return i;
    }
  }
  return text.size();
}

struct Part {
  std::string_view key, value;
};

/// Splits a canonical object into members, or an array into items; nothing for other values.
std::optional<std::vector<Part>> parts_of(std::string_view value, bool object) {
  if (value[0] != (object ? '{' : '[')) return std::nullopt;
  std::vector<Part> parts;
  for (size_t at = 1; at + 1 < value.size(); ++at) {  // after the bracket or the comma
    Part part;
    if (object) {
      part.key = value.substr(at, value_length(value.substr(at)));
      at += part.key.size() + 1;
    }
    part.value = value.substr(at, value_length(value.substr(at)));
    at += part.value.size();
    parts.push_back(part);
  }
  return parts;
}

/// Compares significant digits only, because the decimal point may move with what follows.
bool number_may_become(std::string_view begun, std::string_view value) {
  if (value[0] != '-' && (value[0] < '0' || value[0] > '9')) return false;
  const bool zero = value == "0";
  if (!zero && (begun[0] == '-') != (value[0] == '-')) return false;
  std::string_view wanted = zero ? std::string_view() : value.substr(0, value.find('e'));
  if (wanted.starts_with('-')) wanted.remove_prefix(1);
  const size_t exponent = begun.find_first_of("eE");
  std::string digits;
  for (const char byte : begun.substr(0, exponent)) {
    if (byte >= '0' && byte <= '9' && !(digits.empty() && byte == '0')) digits += byte;
  }
  digits.erase(digits.find_last_not_of('0') + 1);
  return exponent == std::string_view::npos ? wanted.starts_with(digits) : wanted == digits;
}

}  // namespace

/// Exponents are left out, because numbers have other spellings without them.
uint64_t least_length(std::string_view value) {
  uint64_t length = 0;
  bool quoted = false, exponent = false;
  for (size_t i = 0; i < value.size(); ++i) {
    const char byte = value[i];
    exponent = !quoted && (byte == 'e' || (exponent && continues_number(byte)));
    if (!exponent) ++length;
    if (quoted && byte == '\\') ++i, ++length;
    if (byte == '"') quoted = !quoted;
  }
  return length;
}

void ItemText::read(char byte) {
  if (in_string()) {
    read_in_string(byte);
  } else if (is_space(byte)) {
    end_scalar();
  } else if (byte == '"') {
    begin(Kind::string);
  } else if (byte == '{' || byte == '[') {
    levels_.push_back({.object = byte == '{'});
  } else if (byte == '}' || byte == ']') {
    end_scalar();
    close();
  } else if (byte == ',') {
    end_scalar();
    levels_.back().separated = true;
  } else if (byte != ':') {
    if (kind_ == Kind::none) begin(Kind::plain);
    scalar_ += byte;
  }
  ++size_;
  last_ = byte;
}

void ItemText::read_in_string(char byte) {
  if (!escape_.empty() || byte == '\\') {
    escape_ += byte;
    if (!is_complete(escape_)) return;
    append_unescaped(scalar_, escape_);
    escape_.clear();
    return;
  }
  scalar_ += byte;
  if (byte == '"') deliver(std::move(scalar_));
}

void ItemText::begin(Kind kind) {
  kind_ = kind;
  scalar_ = kind == Kind::string ? "\"" : "";
  scalar_begin_ = size_;
}

void ItemText::end_scalar() {
  if (kind_ == Kind::plain) deliver(canonical_plain(scalar_));
}

void ItemText::deliver(std::string value) {
  kind_ = Kind::none;
  if (levels_.empty()) {
    value_ = std::move(value);
    return;
  }
  Level& level = levels_.back();
  if (level.object && !level.key) {
    level.key = std::move(value);
    level.key_begin = scalar_begin_;
    return;
  }
  level.members.push_back({level.key.value_or(""), std::move(value), level.key_begin});
  level.key.reset();
  level.separated = false;
}

void ItemText::close() {
  Level level = std::move(levels_.back());
  levels_.pop_back();
  if (level.object) {
    std::sort(level.members.begin(), level.members.end(), [](auto& a, auto& b) { return a.key < b.key; });
  }
  std::string value(1, level.object ? '{' : '[');
  for (const Member& member : level.members) {
    if (value.size() > 1) value += ',';
    if (level.object) value += member.key + ":";
    value += member.value;
  }
  deliver(value + (level.object ? '}' : ']'));
}

std::string ItemText::value() const { return kind_ == Kind::plain ? canonical_plain(scalar_) : value_; }

bool ItemText::scalar_may_become(std::string_view value) const {
  return in_number() ? number_may_become(scalar_, value) : value.starts_with(scalar_);
}

bool ItemText::may_become(std::string_view value) const {
  for (size_t depth = 0; depth < levels_.size(); ++depth) {
    const Level& level = levels_[depth];
    const auto parts = parts_of(value, level.object);
    if (!parts || parts->size() < level.members.size()) return false;
    const auto find = [&](std::string_view key) {
      return std::find_if(parts->begin(), parts->end(), [&](const Part& part) { return part.key == key; });
    };
    for (size_t i = 0; i < level.members.size(); ++i) {
      const auto part = level.object ? find(level.members[i].key) : parts->begin() + static_cast<ptrdiff_t>(i);
      if (part == parts->end() || part->value != level.members[i].value) return false;
    }
    const bool innermost = depth + 1 == levels_.size();
    if (innermost && kind_ == Kind::none && !level.key) return !level.separated || parts->size() > level.members.size();
    if (level.object && !level.key) {
      const auto unread = [&](const Part& part) {
        return part.key.starts_with(scalar_) && std::none_of(level.members.begin(), level.members.end(),
                                                             [&](auto& read) { return read.key == part.key; });
      };
      return std::any_of(parts->begin(), parts->end(), unread);
    }
    const auto next = level.object ? find(*level.key) : parts->begin() + static_cast<ptrdiff_t>(level.members.size());
    if (next == parts->end()) return false;
    value = next->value;
    if (innermost && kind_ == Kind::none) return true;
  }
  return kind_ == Kind::none ? value_.empty() || value_ == value : scalar_may_become(value);
}

bool ItemText::goes_on_plainly(char byte, size_t from, PlainStyle style) const {
  if (in_string()) {
    if (byte != '"' || !escape_.empty() || !style.sorted || !in_key() || levels_.back().members.empty()) return true;
    const Member& last = levels_.back().members.back();
    return last.begin < from || last.key < scalar_ + '"';
  }
  if (in_number() && scalar_begin_ >= from) {
    if (continues_number(byte)) return byte != 'e' && byte != 'E';
    if (!ends_plainly(from)) return false;
  }
  return !is_space(byte) || style.spaced || (byte == '\n' && last_ == '\r');
}

bool ItemText::ends_plainly(size_t from) const {
  if (!in_number() || scalar_begin_ < from) return true;
  return scalar_.find('.') == std::string::npos || scalar_.back() != '0';
}

}  // namespace constrain::json
