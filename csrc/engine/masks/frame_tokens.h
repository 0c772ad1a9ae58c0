// Tokens that single frames allow, independent of their context.
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

/// Context-independent tokens of a frame: those that stay within it, whatever its parents are.
struct FrameTokens {
  /// A trie node at which the frame may be over, so that its parents decide about the subtree.
  struct BoundaryNode {
    TriePtr trie;
    uint32_t node;
  };
  TokenClassPtr token_class;    ///< in a wildcard region: the class of its characters ...
  uint64_t max_length = 0;      ///< ... whose tokens of up to this many characters are allowed
  std::vector<TokenId> tokens;  ///< further allowed tokens ...
  TokenBitsPtr many;            ///< ... or their bitset, if they are many
  std::vector<BoundaryNode> boundary_nodes;
  uint64_t growth = 0;  ///< see frame_growth

  /// Index ranges of the tokens and boundary nodes that start with one byte.
  struct Run {
    uint8_t byte;
    uint32_t tokens, tokens_end;
    uint32_t boundary_nodes, boundary_end;
  };
  std::vector<Run> runs;  ///< empty if there is a bitset
  bool by_byte = true;    ///< `runs` covers all tokens and boundary nodes

  /// Another frame's tokens, of which those that start with a byte in `agreed` belong to this frame too. Has runs.
  std::shared_ptr<const FrameTokens> similar;
  ByteSet agreed;

  size_t bytes() const {
    return tokens.size() * sizeof(TokenId) + (many ? many->bytes() : 0) + boundary_nodes.size() * sizeof(BoundaryNode) +
           runs.size() * sizeof(Run) + sizeof(FrameTokens);
  }
};

using FrameTokensPtr = std::shared_ptr<const FrameTokens>;
/// Cache by frame descriptions. A null entry means that the outline is not enough, and the full description is the key.
using FrameTokensCache = LruCache<FrameTokensPtr>;

}  // namespace constrain
