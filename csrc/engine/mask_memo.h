// Masks of the places a text was at, for texts that stay in one: the body of a string is one configuration.
#pragma once

#include <array>
#include <unordered_map>

#include "engine/configuration.h"
#include "engine/mask.h"

namespace constrain {

/// The masks of the last configurations, oldest first out.
class MaskMemo {
 public:
  static constexpr size_t kCapacity = 256;

  /// Null where it is not known.
  MaskPtr find(const Configuration* configuration) const {
    const auto it = masks_.find(configuration);
    return it == masks_.end() ? nullptr : it->second;
  }

  void keep(const Configuration* configuration, MaskPtr mask) {
    if (!masks_.emplace(configuration, std::move(mask)).second) return;
    masks_.erase(owners_[next_]);
    owners_[next_] = configuration;
    next_ = (next_ + 1) % kCapacity;
  }

 private:
  std::unordered_map<const Configuration*, MaskPtr> masks_;
  std::array<const Configuration*, kCapacity> owners_{};
  size_t next_ = 0;
};

}  // namespace constrain
