// Sets of tokens, as results: immutable, shared, and named by a number.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace constrain {

/// An immutable set of tokens.
struct Mask {
  uint64_t id;      ///< equal masks of a vocabulary that live at the same time have one number; never used again
  uint32_t tokens;  ///< how many are allowed
  std::vector<uint32_t> words;  ///< bit t % 32 of word t / 32
};

using MaskPtr = std::shared_ptr<const Mask>;

/// Makes masks, and finds those that are there already. Thread-safe.
class MaskPool {
 public:
  MaskPtr intern(std::vector<uint32_t> words);

 private:
  void sweep();

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, std::weak_ptr<const Mask>> known_;
  size_t sweep_at_ = 1024;
};

}  // namespace constrain
