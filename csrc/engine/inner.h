// What single frames allow, for themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/lru_cache.h"
#include "engine/token_class.h"
#include "engine/trie.h"

namespace constrain {

/// What may follow from one frame, whatever waits below it.
struct Inner {
  /// A node at which the frame is over, so that what is below the node is for the frames below.
  struct Exit {
    const Trie* trie;
    uint32_t node;
  };
  TokenClassPtr within;         ///< where the text is free, the tokens that stay within its class ...
  uint64_t room = 0;            ///< ... of which those of up to so many characters are allowed
  std::vector<TokenId> tokens;  ///< allowed beside these
  std::vector<uint32_t> words;  ///< ... as a mask, where that is smaller than the list
  std::vector<Exit> exits;

  size_t bytes() const {
    return (tokens.size() + words.size()) * sizeof(uint32_t) + exits.size() * sizeof(Exit) + sizeof(Inner);
  }
};

using InnerPtr = std::shared_ptr<const Inner>;
/// By descriptions of frames; null where an outline does not suffice.
using InnerCache = LruCache<InnerPtr>;

}  // namespace constrain
