// Words in the order of their bytes, for walks along all of them at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/bits.h"
#include "engine/base/byte_set.h"

namespace constrain {

/// Different words in byte order, stored end to end.
class SortedWords {
 public:
  void add(std::string_view word) {
    text_ += word;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
  }

  uint8_t byte(uint32_t word, uint32_t at) const { return static_cast<uint8_t>(text_[begin(word) + at]); }
  size_t length(uint32_t word) const { return ends_[word] - begin(word); }

  /// The end of the words from `low` on that agree with it in byte `at`. All before `high` are longer than that, and
  /// agree in the bytes before it.
  uint32_t end_of_byte(uint32_t low, uint32_t high, uint32_t at) const {
    const uint8_t same = byte(low, at);
    uint32_t step = 1;
    while (low + step < high && byte(low + step, at) == same) low += step, step *= 2;
    high = std::min(high, low + step);
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      (byte(middle, at) == same ? low : high) = middle;
    }
    return high;
  }

 private:
  size_t begin(uint32_t word) const { return word ? ends_[word - 1] : 0; }

  std::string text_;
  std::vector<uint32_t> ends_;
};

/// Those words in [low, high) whose bits are set, which agree in the first `length` bytes.
struct OpenWords {
  const SortedWords& words;
  std::span<const uint64_t> open;
  uint32_t low, high, length;
  const ByteSet& plain;  ///< bytes that are written as they are, so that others escape a byte or end the word

  bool any(uint32_t begin, uint32_t end) const { return bits::any(open, begin, end); }
};

}  // namespace constrain
