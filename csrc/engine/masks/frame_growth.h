// Bounds on the completions of frames that mean the same in every grammar, cached with the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

struct FrameGrowth {
  uint64_t bytes = 0;  ///< bounds the bytes that `remaining` grows by over a token that stays in the frame
  TriePtr leaving;     ///< has all tokens after which the frame may be over; null: the vocabulary's trie has them
  std::vector<uint32_t> boundary_nodes;  ///< nodes of that trie at which the frame may be over

  const Trie& trie(const Vocabulary& vocabulary) const { return leaving ? *leaving : vocabulary.trie(); }
};

/// Computes the growth of a frame; null for frames that only mean something in their grammar.
std::shared_ptr<const FrameGrowth> frame_growth(const CompiledGrammar& grammar, const StackTop& top);

}  // namespace constrain
