// Dense ids for short sequences of words: the state numbers of automata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/memory_account.h"

namespace constrain {

class SequenceInterner {
 public:
  /// Returns the id of `key`. Equal keys have equal ids, which count up from 0.
  uint32_t intern(std::span<const uint32_t> key);

  /// Returns the key of an id; valid until the next call of `intern`.
  std::span<const uint32_t> operator[](uint32_t id) const {
    return {words_.data() + (id ? ends_[id - 1] : 0), words_.data() + ends_[id]};
  }

  size_t size() const { return ends_.size(); }

 private:
  static constexpr size_t kFirst = 16;  // elements that a list has room for at first

  void grow();
  template <class Element>
  void reserve(std::vector<Element>& list, size_t size);

  MemoryShare memory_;
  std::vector<uint32_t> words_;  // all keys, end to end
  std::vector<size_t> ends_;     // of the keys in `words_`
  std::vector<uint32_t> slots_;  // open addressing; id + 1, or 0 where free
};

}  // namespace constrain
