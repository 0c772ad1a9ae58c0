#include "engine/trie.h"

namespace constrain {

void Trie::index_wide_nodes() {
  wide.assign(nodes(), 0);
  for (uint32_t node = 0; node < nodes(); ++node) {
    const uint32_t end = node + size[node];
    uint32_t children = 0;
    for (uint32_t child = node + 1; child < end; child += size[child]) ++children;
    if (children < kWide) continue;
    Jumps table;
    uint32_t child = node + 1;
    for (size_t value = 0; value < table.size(); ++value) {
      while (child < end && byte[child] < value) child += size[child];
      table[value] = child;
    }
    jumps.push_back(table);
    wide[node] = static_cast<uint32_t>(jumps.size());
  }
}

}  // namespace constrain
