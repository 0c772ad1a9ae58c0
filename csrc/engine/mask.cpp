#include "engine/mask.h"

#include <algorithm>
#include <vector>

namespace constrain {

namespace {

/// The heads after each byte of a path through the trie, back to back, so that going back up is an index.
struct Level {
  size_t begin, end;
  const Row* row;  ///< of the only head, where that is within its rule and nothing else can happen; else nullptr
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

  std::vector<Head> heads(configuration.heads().begin(), configuration.heads().end()), merged;
  std::vector<Level> levels(size_t{vocabulary.longest_token()} + 1);
  const auto level = [&](size_t begin) {
    const Row* row = heads.size() - begin == 1 ? &grammar.row(heads[begin].state) : nullptr;
    const bool alone = row && !(row->accepting && heads[begin].below);
    return Level{begin, heads.size(), alone ? row : nullptr};
  };
  levels[0] = level(0);

  for (uint32_t node = 1; node < trie.nodes();) {
    const size_t depth = trie.depth[node];
    const Level& above = levels[depth - 1];
    const uint8_t byte = trie.byte[node];
    const uint32_t action = above.row ? above.row->action[byte] : 0;
    if (above.row && action == 0) {
      node += trie.size[node];
      continue;
    }
    heads.resize(above.end);
    if (action & Row::kGoto) {
      const Head& head = heads[above.begin];
      heads.push_back({action & ~Row::kGoto, head.reg, head.below});
    } else {
      for (size_t k = above.begin; k < above.end; ++k) stepper.step(heads[k], byte, heads);
      if (heads.size() == above.end) {
        node += trie.size[node];
        continue;
      }
    }
    if (heads.size() - above.end > kMergeAbove) {
      merged.assign(heads.begin() + static_cast<ptrdiff_t>(above.end), heads.end());
      const auto kept = store.make(merged)->heads();
      heads.resize(above.end);
      heads.insert(heads.end(), kept.begin(), kept.end());
    }
    // A token without further ones below it needs no row.
    const bool leaf = trie.size[node] == 1;
    levels[depth] = leaf ? Level{above.end, heads.size(), nullptr} : level(above.end);
    for (TokenId token = trie.token[node]; token != kNoToken; token = vocabulary.next_duplicate(token)) {
      mask[token / 32] |= 1u << (token % 32);
    }
    ++node;
  }
}

}  // namespace constrain
