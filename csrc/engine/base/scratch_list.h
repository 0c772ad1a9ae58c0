// Lists for hot loops.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

namespace constrain {

/// A vector whose first `N` elements need no allocation.
template <class T, size_t N>
class ScratchList {
 public:
  ScratchList() { list.reserve(N); }
  ScratchList(const ScratchList&) = delete;
  ScratchList& operator=(const ScratchList&) = delete;

 private:
  alignas(T) std::array<std::byte, N * sizeof(T)> room_;
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};

 public:
  std::pmr::vector<T> list{&memory_};
};

}  // namespace constrain
