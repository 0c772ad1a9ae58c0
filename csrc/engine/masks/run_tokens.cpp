#include "engine/masks/run_tokens.h"

#include <algorithm>
#include <array>

namespace constrain {

namespace {

/// Begins keys, in place of the number of a rule, which is not 0.
constexpr uint64_t kRun = 0;

RunTokens find_tokens(const CompiledGrammar& grammar, StateId state, uint32_t root) {
  const Trie& trie = grammar.vocabulary().trie();
  RunTokens found;
  std::vector<StateId> states(size_t{grammar.vocabulary().longest_token()} + 1, state);  // by depth
  for (uint32_t node = root + 1; node < root + trie.size[root];) {
    const size_t depth = trie.depth[node];
    const uint32_t action = grammar.row(states[depth - 1]).own_action(trie.byte[node]);
    if (action) {
      states[depth] = action & ~Row::kGoto;
      trie.append_tokens(node, found.tokens);
      ++node;
    } else {
      found.exits.push_back({node, trie.byte[node]});
      node += trie.size[node];
    }
  }
  std::ranges::stable_sort(found.exits, {}, &Exits::Exit::byte);
  return found;
}

}  // namespace

std::shared_ptr<const RunTokens> run_tokens(const CompiledGrammar& grammar, StateId state, uint32_t node) {
  const std::array<uint64_t, 2> key{kRun, uint64_t{node} << 32 | grammar.row(state).run};
  Vocabulary::SharedResults& cache = grammar.vocabulary().shared_results();
  if (const auto cached = cache.find(key)) return std::static_pointer_cast<const RunTokens>(*cached);
  auto made = std::make_shared<const RunTokens>(find_tokens(grammar, state, node));
  const size_t bytes = made->tokens.size() * sizeof(TokenId) + made->exits.size() * sizeof(Exits::Exit);
  cache.put(key, made, sizeof(RunTokens) + bytes);
  return made;
}

}  // namespace constrain
