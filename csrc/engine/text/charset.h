// Sets of Unicode scalar values.
#pragma once

#include <initializer_list>
#include <vector>

#include "engine/text/utf8.h"

namespace constrain {

/// Ascending ranges with gaps between them. Surrogates are never members.
class CharSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges);
  explicit CharSet(std::vector<Range> ranges);  ///< in any order, overlapping or not
  static CharSet single(char32_t scalar);
  static const CharSet& all();

  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t scalar) const;
  bool operator==(const CharSet&) const = default;

  CharSet operator~() const;
  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const;
  CharSet operator-(const CharSet& other) const { return *this & ~other; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace constrain
