// Masks that were just computed, for texts that stay in one place: the body of a string is one configuration.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/configuration.h"

namespace constrain {

/// The masks of the last configurations, oldest first out.
class MaskMemo {
 public:
  static constexpr size_t kCapacity = 64;

  const std::vector<uint32_t>* find(const Configuration* configuration) const {
    const auto it = slots_.find(configuration);
    return it == slots_.end() ? nullptr : &masks_[it->second];
  }

  void keep(const Configuration* configuration, const uint32_t* mask, size_t words) {
    if (slots_.contains(configuration)) return;
    slots_.erase(owners_[next_]);
    owners_[next_] = configuration;
    masks_[next_].assign(mask, mask + words);
    slots_.emplace(configuration, next_);
    next_ = (next_ + 1) % kCapacity;
  }

 private:
  std::unordered_map<const Configuration*, size_t> slots_;
  std::array<const Configuration*, kCapacity> owners_{};
  std::array<std::vector<uint32_t>, kCapacity> masks_;
  size_t next_ = 0;
};

}  // namespace constrain
