// Bytes that may come next in some parse.
#pragma once

#include <vector>

#include "engine/base/byte_set.h"
#include "engine/grammar/configuration.h"
#include "engine/grammar/parse_table.h"

namespace constrain {

/// Bytes with a transition, which guards may still refuse.
inline ByteSet possible_bytes(const ParseTable& grammar, const Configuration& at) {
  ByteSet bytes;
  std::vector<const Configuration*> pending{&at};
  for (size_t i = 0; i < pending.size(); ++i) {
    for (const StackTop& top : pending[i]->tops()) {
      const Row& row = grammar.row(top.state);
      bytes.add(row.bytes);
      if (row.accepting && top.parent) pending.push_back(top.parent);
    }
  }
  return bytes;
}

}  // namespace constrain
