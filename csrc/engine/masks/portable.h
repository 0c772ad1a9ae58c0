// Frames that mean the same in every grammar. What is found out about them is kept with the vocabulary.
#pragma once

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/inner.h"

namespace constrain {

/// What a frame that stands at a node of the vocabulary's trie allows below it; null for frames that only mean
/// something in their grammar.
InnerPtr portable_below(const CompiledGrammar& grammar, const Head& head, uint32_t node);

/// Where tokens may leave a frame, and by how many bytes what it still needs may grow in one that does not; the tokens
/// are not listed. Null for the same frames.
InnerPtr portable_growth(const CompiledGrammar& grammar, const Head& head);

}  // namespace constrain
