// Tokens over which a run of white space goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/masks/compiled_grammar.h"
#include "engine/masks/frame_tokens.h"

namespace constrain {

/// The subtree of a node of the vocabulary's trie at which a text is within a run of white space. It is the same in all
/// grammars, so that a walk need not visit the nodes of the run.
struct RunTokens {
  std::vector<TokenId> tokens;     ///< those that stay in the run
  std::vector<Exits::Exit> exits;  ///< the first nodes after the run, by byte
};

/// Finds the tokens of the vocabulary below `node`, where a frame is in `state`, whose row has a `run`; cached.
std::shared_ptr<const RunTokens> run_tokens(const CompiledGrammar& grammar, StateId state, uint32_t node);

}  // namespace constrain
