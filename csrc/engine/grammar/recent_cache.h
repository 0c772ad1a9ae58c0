// A small cache for texts that stay in one configuration, as the body of a string does.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "engine/grammar/configuration.h"

namespace constrain {

/// Caches pointers for recent configurations: each has one place, which it shares with few others.
template <class Value>
class RecentCache {
 public:
  /// Null on a miss.
  const Value* find(const Configuration* configuration) const {
    const Entry& entry = entries_[place(configuration)];
    return entry.value && entry.configuration == configuration ? &entry.value : nullptr;
  }

  /// Inserts or replaces a value.
  void put(const Configuration* configuration, Value value) {
    entries_[place(configuration)] = {configuration, std::move(value)};
  }

 private:
  static constexpr size_t kBits = 6;

  struct Entry {
    const Configuration* configuration = nullptr;
    Value value = {};
  };

  static size_t place(const Configuration* configuration) {
    return reinterpret_cast<uintptr_t>(configuration) * 0x9E3779B97F4A7C15ull >> (64 - kBits);
  }

  std::array<Entry, size_t{1} << kBits> entries_;
};

}  // namespace constrain
