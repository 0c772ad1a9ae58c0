// Which tokens keep a text inside a grammar.
#pragma once

#include <vector>

#include "engine/inner.h"
#include "engine/mask.h"

namespace constrain {

class CompiledGrammar;
class TrieWalk;
struct Configuration;
struct Head;

/// Puts masks together from what single frames allow and from what those below make of the rest.
///
/// A token that stays within the top frame is allowed whatever is below it, so that part is kept for the frame alone
/// (`Inner`). Where the frame may be over in the middle of a token the rest is walked from the frames below. How deep
/// that looked is recorded: the mask holds wherever those frames agree, and is kept under their descriptions.
class MaskBuilder {
 public:
  explicit MaskBuilder(const CompiledGrammar& grammar) : grammar_(grammar) {}

  /// The allowed tokens, end-of-sequence tokens included where the text may end.
  MaskPtr build(const Configuration& configuration);

 private:
  MaskPtr compute(const Configuration& configuration, TrieWalk& walk);
  void add(const Configuration& configuration, TrieWalk& walk, std::vector<uint32_t>& words);
  void add_jointly(const Configuration& configuration, TrieWalk& walk, std::vector<uint32_t>& words);
  void allow(const std::vector<TokenId>& tokens, std::vector<uint32_t>& words) const;
  InnerPtr inner(const Head& head, TrieWalk& walk);
  Inner walk_alone(const Head& head, TrieWalk& walk);
  bool describe(const Configuration& configuration, std::vector<uint64_t>& key) const;

  const CompiledGrammar& grammar_;
  bool describable_ = true;
};

}  // namespace constrain
