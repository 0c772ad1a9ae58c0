// What is remembered of the places a text was at, for texts that stay in one: the body of a string is one
// configuration.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/grammar/configuration.h"

namespace constrain {

/// What was found of the last configurations, oldest first out.
template <class Value>
class Memo {
 public:
  static constexpr size_t kCapacity = 256;

  /// Null where nothing is known.
  const Value* find(const Configuration* configuration) const {
    const auto it = values_.find(configuration);
    return it == values_.end() ? nullptr : &it->second;
  }

  /// Replaces what is known of the configuration.
  void keep(const Configuration* configuration, Value value) {
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
