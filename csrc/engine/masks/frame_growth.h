// Bounds on the completions of frames that mean the same in every grammar, cached with the vocabulary.
#pragma once

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/frame_tokens.h"

namespace constrain {

/// Computes at which trie nodes a frame may be over, and how many bytes `remaining` may grow by over a token that stays
/// in it; the tokens are not listed. Null for frames that only mean something in their grammar.
FrameTokensPtr frame_growth(const CompiledGrammar& grammar, const StackTop& top);

}  // namespace constrain
