// A small cache for texts that stay in one configuration, as the body of a string does.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/grammar/configuration.h"

namespace constrain {

/// Caches values of the last `kCapacity` configurations; evicts the oldest.
template <class Value>
class RecentCache {
 public:
  static constexpr size_t kCapacity = 256;

  /// Null on a miss.
  const Value* find(const Configuration* configuration) const {
    const auto it = values_.find(configuration);
    return it == values_.end() ? nullptr : &it->second;
  }

  /// Inserts or replaces a value.
  void put(const Configuration* configuration, Value value) {
    if (!values_.insert_or_assign(configuration, std::move(value)).second) return;
    if (order_[next_]) values_.erase(*order_[next_]);
    order_[next_] = configuration;
    next_ = (next_ + 1) % kCapacity;
  }

 private:
  std::unordered_map<const Configuration*, Value> values_;
  std::array<std::optional<const Configuration*>, kCapacity> order_{};
  size_t next_ = 0;
};

}  // namespace constrain
