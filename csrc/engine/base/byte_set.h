// Sets of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace constrain {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  void add(uint8_t byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
  /// Adds the bytes from `first` to `last`.
  constexpr void add(uint8_t first, uint8_t last) {
    for (size_t i = first / 64; i <= last / 64; ++i) {
      const uint64_t from = ~uint64_t{0} << (i == first / 64 ? first % 64 : 0);
      words[i] |= from & ~uint64_t{0} >> (i == last / 64 ? 63 - last % 64 : 0);
    }
  }
  bool has(uint8_t byte) const { return words[byte / 64] >> (byte % 64) & 1; }
  void fill() { words.fill(~uint64_t{0}); }
  static ByteSet all() {
    ByteSet out;
    out.fill();
    return out;
  }
  static ByteSet range(uint8_t first, uint8_t last) {
    ByteSet out;
    out.add(first, last);
    return out;
  }
  bool empty() const { return next(0) < 0; }
  int count() const {
    int sum = 0;
    for (const uint64_t word : words) sum += std::popcount(word);
    return sum;
  }
  ByteSet operator~() const {
    ByteSet out;
    for (size_t i = 0; i < words.size(); ++i) out.words[i] = ~words[i];
    return out;
  }
  ByteSet operator&(const ByteSet& other) const {
    ByteSet out;
    for (size_t i = 0; i < words.size(); ++i) out.words[i] = words[i] & other.words[i];
    return out;
  }
  void add(const ByteSet& other) {
    for (size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
  }

  /// Smallest member that is at least `from`, or -1.
  int next(int from) const {
    if (from > 255) return -1;
    size_t word = static_cast<size_t>(from) / 64;
    uint64_t left = words[word] >> (from % 64) << (from % 64);
    while (!left) {
      if (++word == words.size()) return -1;
      left = words[word];
    }
    return static_cast<int>(word * 64) + std::countr_zero(left);
  }

  bool operator==(const ByteSet&) const = default;
};

}  // namespace constrain
