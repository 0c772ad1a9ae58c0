// Tokens that single frames allow, independent of their context.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/lru_cache.h"
#include "engine/tokens/mask.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// Places in a trie where a frame may be over in the middle of a token, so that its parents decide about the rest.
struct Exits {
  /// The first node of such a rest, and its byte.
  struct Exit {
    uint32_t node;
    uint8_t byte;
  };
  TriePtr trie;
  std::vector<Exit> exits;      ///< by byte, so that only those are visited by which the parents may go on
  std::vector<TokenId> except;  ///< tokens that other exits decide about

  size_t bytes() const { return exits.size() * sizeof(Exit) + except.size() * sizeof(TokenId); }
};

using ExitsPtr = std::shared_ptr<const Exits>;

/// Context-independent tokens of a frame: those that stay within it, whatever its parents are.
struct FrameTokens {
  MaskPtr allowed;
  std::vector<ExitsPtr> exits;

  size_t bytes() const;
};

using FrameTokensPtr = std::shared_ptr<const FrameTokens>;
/// Cache by frame descriptions. A null entry means that the outline is not enough, and the full description is the key.
using FrameTokensCache = LruCache<FrameTokensPtr>;

}  // namespace constrain
