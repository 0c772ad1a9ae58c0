#include "engine/mask.h"

#include <algorithm>
#include <vector>

namespace constrain {

namespace {

/// Sets of heads by trie depth, back to back, so that going back up the trie is an index.
struct Path {
  std::vector<Head> heads;
  std::vector<size_t> begin;  // begin[d] .. begin[d + 1]: the heads after d bytes
};

/// Beyond this many readings it pays to look for ones that agree.
constexpr size_t kMergeAbove = 4;

}  // namespace

void compute_mask(const CompiledGrammar& grammar, const Configuration& configuration, uint32_t* mask) {
  const Vocabulary& vocabulary = grammar.vocabulary();
  const PlainTokens& plain = vocabulary.plain();
  uint64_t room = 0;
  for (const Head& head : configuration.heads()) room = std::max(room, grammar.plain_text_room(head.state, head.reg));
  if (room > 0) plain.add(room, mask);
  // The plain tokens are settled where all of them fit, or where no other reading could take one that does not.
  const bool settled = room >= plain.longest() || (room > 0 && configuration.count == 1);
  const Trie& trie = settled ? plain.others : vocabulary.trie();
  Arena arena;
  Registers registers(arena, false);
  ConfigurationStore store(grammar, arena, false);
  Stepper stepper(grammar, store, registers);

  Path path;
  path.heads.assign(configuration.heads().begin(), configuration.heads().end());
  path.begin = {0, path.heads.size()};
  std::vector<Head> merged;
  for (uint32_t node = 1; node < trie.nodes();) {
    const size_t depth = trie.depth[node];
    const size_t from = path.begin[depth - 1], to = path.begin[depth];
    path.heads.resize(to);
    for (size_t k = from; k < to; ++k) stepper.step(path.heads[k], trie.byte[node], path.heads);
    if (path.heads.size() == to) {
      node += trie.size[node];
      continue;
    }
    if (path.heads.size() - to > kMergeAbove) {
      merged.assign(path.heads.begin() + static_cast<ptrdiff_t>(to), path.heads.end());
      const auto heads = store.make(merged)->heads();
      path.heads.resize(to);
      path.heads.insert(path.heads.end(), heads.begin(), heads.end());
    }
    path.begin.resize(depth + 1);
    path.begin.push_back(path.heads.size());
    for (TokenId token = trie.token[node]; token != kNoToken; token = vocabulary.next_duplicate(token)) {
      mask[token / 32] |= 1u << (token % 32);
    }
    ++node;
  }
}

}  // namespace constrain
