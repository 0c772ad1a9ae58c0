// Differences of lists of tokens.
#pragma once

#include <span>
#include <vector>

#include "engine/base/bits.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// Removes from `tokens` those in `others`, in time proportional to both; `words` is the size of a bitmask.
inline void erase_tokens(std::vector<TokenId>& tokens, std::span<const TokenId> others, size_t words) {
  thread_local std::vector<uint32_t> marks;
  if (tokens.empty() || others.empty()) return;
  if (marks.size() < words) marks.resize(words);
  for (const TokenId token : others) bits::set(marks.data(), static_cast<size_t>(token));
  std::erase_if(tokens, [&](TokenId token) { return marks[static_cast<size_t>(token) / 32] >> (token % 32) & 1; });
  for (const TokenId token : others) marks[static_cast<size_t>(token) / 32] = 0;
}

}  // namespace constrain
