// Bounds on the completions of frames that mean the same in every grammar, cached with the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

struct FrameGrowth {
  uint64_t bytes = 0;                    ///< most bytes that `remaining` grows by over a token that stays in the frame
  std::vector<uint32_t> boundary_nodes;  ///< nodes of the vocabulary's trie at which the frame may be over
};

/// Computes the growth of a frame; null for frames that only mean something in their grammar.
std::shared_ptr<const FrameGrowth> frame_growth(const CompiledGrammar& grammar, const StackTop& top);

}  // namespace constrain
