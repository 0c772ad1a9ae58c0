// What single frames allow, for themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/byte_set.h"
#include "engine/base/lru_cache.h"
#include "engine/tokens/mask.h"
#include "engine/tokens/token_class.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// What may follow from one frame, whatever waits below it.
struct Inner {
  /// A node at which the frame is over, so that what is below the node is for the frames below.
  struct Exit {
    TriePtr trie;
    uint32_t node;
  };
  TokenClassPtr within;         ///< where the text is free, the tokens that stay within its class ...
  uint64_t room = 0;            ///< ... of which those of up to so many characters are allowed
  std::vector<TokenId> tokens;  ///< allowed beside these
  TokenBitsPtr many;            ///< ... as bits, where they are many
  std::vector<Exit> exits;
  uint64_t growth = 0;  ///< see portable_growth

  /// What begins with one byte: tokens and exits from one index to another.
  struct Run {
    uint8_t byte;
    uint32_t tokens, tokens_end;
    uint32_t exits, exits_end;
  };
  std::vector<Run> runs;  ///< of `tokens`
  bool by_byte = true;    ///< the runs tell of all tokens and exits

  /// Another one, of which what begins with one of `agreed` belongs to this one as well. It has runs.
  std::shared_ptr<const Inner> like;
  ByteSet agreed;

  size_t bytes() const {
    return tokens.size() * sizeof(TokenId) + (many ? many->bytes() : 0) + exits.size() * sizeof(Exit) +
           runs.size() * sizeof(Run) + sizeof(Inner);
  }
};

using InnerPtr = std::shared_ptr<const Inner>;
/// By descriptions of frames; null where an outline does not suffice.
using InnerCache = LruCache<InnerPtr>;

}  // namespace constrain
