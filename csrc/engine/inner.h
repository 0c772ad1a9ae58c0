// What single frames allow, for themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/lru_cache.h"
#include "engine/trie.h"

namespace constrain {

/// What may follow from one frame, whatever waits below it.
struct Inner {
  uint64_t plain_room = 0;      ///< all plain tokens of so many scalar values are allowed, and no longer ones
  std::vector<TokenId> tokens;  ///< allowed, beside the plain ones
  std::vector<uint32_t> words;  ///< ... as a mask, where that is smaller than the list
  std::vector<uint32_t> exits;  ///< nodes at which the frame may be over and the rest is for those below it
  const Trie* trie = nullptr;   ///< of which `exits` are nodes

  size_t bytes() const { return (tokens.size() + words.size() + exits.size()) * sizeof(uint32_t) + sizeof(Inner); }
};

using InnerPtr = std::shared_ptr<const Inner>;
using InnerCache = LruCache<InnerPtr>;

}  // namespace constrain
