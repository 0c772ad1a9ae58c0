#include "engine/masks/callees.h"

#include <algorithm>

namespace constrain {

std::vector<StackTop> with_callees(const ParseTable& grammar, ConfigurationStore& store,
                                   std::span<const StackTop> tops) {
  constexpr size_t kMany = 64;
  std::vector<StackTop> open(tops.begin(), tops.end()), readers;
  for (size_t i = 0; i < open.size(); ++i) {
    if (open.size() > kMany) return {};
    const StackTop top = open[i];
    const std::vector<ParseTable::Call> calls = grammar.calls(top.state);
    if (calls.empty()) readers.push_back(top);
    for (const ParseTable::Call& call : calls) {
      StackTop callee{call.entry, 0, top.parent};
      if (call.then != kDone) callee.parent = store.make(StackTop{call.then, top.reg, top.parent});
      if (std::ranges::find(open, callee) == open.end()) open.push_back(callee);
    }
  }
  return readers;
}

}  // namespace constrain
