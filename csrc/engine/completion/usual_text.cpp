#include "engine/completion/usual_text.h"

#include <algorithm>

#include "engine/masks/callees.h"

namespace constrain {

namespace {

/// Most stack tops that may read the next byte where text is judged as a whole.
constexpr size_t kMostReaders = 64;

}  // namespace

const UsualText* UsualTextFinder::from(const Configuration& from) {
  if (last_.from == &from) return &last_;
  auto found = find(from);
  if (!found) return nullptr;
  last_ = *std::move(found);
  last_.from = &from;
  return &last_;
}

/// Returns the stack tops that read the next byte; none if they are many. Where a frame may be over, and reads no text
/// itself, its parents may.
std::vector<StackTop> UsualTextFinder::readers(const Configuration& from) {
  std::vector<StackTop> tops(from.tops().begin(), from.tops().end());
  for (size_t i = 0; i < tops.size() && tops.size() <= kMostReaders; ++i) {
    const Row& row = grammar_.row(tops[i].state);
    if (!row.accepting || row.usual != kDone || !tops[i].parent) continue;
    for (const StackTop& waiting : tops[i].parent->tops()) {
      if (std::ranges::find(tops, waiting) == tops.end()) tops.push_back(waiting);
    }
  }
  return with_callees(grammar_, walk_.store(), tops);
}

/// Finds the configuration after an arbitrary text of a region, if all stack tops that go on over such texts go on
/// alike; others go on over few texts, such as names.
std::optional<UsualText> UsualTextFinder::find(const Configuration& from) {
  std::vector<StackTop> after;
  std::vector<std::string> exceptions;
  UsualText text;
  const std::vector<StackTop> tops = readers(from);
  for (const StackTop& top : tops) {
    const StackTop usual{grammar_.row(top.state).usual, top.reg, top.parent};
    const WildcardRegion own = grammar_.wildcard_region(top.state, top.reg);
    text.leaving.add(tops.size() == 1 ? own.leaving : ByteSet::all());
    if (usual.state == kDone) continue;
    if (usual.state != top.state && !grammar_.shares_registers(top.state, usual.state)) return std::nullopt;
    const WildcardRegion region = grammar_.wildcard_region(usual.state, usual.reg);
    if (region.max_length != WildcardRegion::kUnbounded) return std::nullopt;
    if (!after.empty() && region.characters != text.characters) return std::nullopt;
    text.characters = region.characters;
    text.over |= top.parent && region.leaving == ByteSet::all();
    const auto skipped = any_text(usual, exceptions);
    if (!skipped) return std::nullopt;
    after.push_back(*skipped);
  }
  if (after.empty() || !list_unlike(tops, text.unlike)) return std::nullopt;
  add_beginnings(exceptions, text.unlike);
  text.after = walk_.store().make(after);
  return text;
}

/// Lists the tokens over which stack tops go on unlike one in the state that most bytes lead to, as a key that may
/// become a known name does. False if that takes long.
bool UsualTextFinder::list_unlike(const std::vector<StackTop>& tops, std::vector<TokenId>& unlike) {
  const Trie& trie = grammar_.vocabulary().trie();
  thread_local WalkScratch scratch;
  TrieWalk walk(grammar_, scratch);
  bool few = true;
  for (const StackTop& top : tops) {
    const StateId usual = grammar_.row(top.state).usual;
    if (usual == top.state) continue;
    walk.tokens.clear(), walk.differing.clear(), walk.boundary_nodes.clear();
    if (usual == kDone) {
      walk.run_alone(trie, top, top.parent_depth());
    } else {
      few &= walk.run_beside(trie, top.state, usual, top.reg, top.parent_depth(), trie.nodes() / 8);
    }
    unlike.insert(unlike.end(), walk.tokens.begin(), walk.tokens.end());
    unlike.insert(unlike.end(), walk.differing.begin(), walk.differing.end());
    for (const uint32_t node : walk.boundary_nodes) {
      for (uint32_t below = node + 1; below < node + trie.size[node]; ++below) trie.append_tokens(below, unlike);
    }
  }
  walk_.visited += walk.visited;
  return few;
}

/// Appends the tokens that are prefixes of some texts.
void UsualTextFinder::add_beginnings(const std::vector<std::string>& texts, std::vector<TokenId>& out) const {
  const Trie& trie = grammar_.vocabulary().trie();
  for (const std::string& text : texts) {
    uint32_t node = 0;
    for (const char byte : text) {
      node = trie.child(node, static_cast<uint8_t>(byte));
      if (!node) break;
      trie.append_tokens(node, out);
    }
  }
}

std::optional<StackTop> UsualTextFinder::any_text(const StackTop& top, std::vector<std::string>& exceptions) {
  Registers& registers = walk_.registers();
  registers.depth = top.parent_depth();
  StackTop after = top;
  if (!grammar_.skip_wildcard(top.state, after.reg, registers, exceptions)) return std::nullopt;
  return after;
}

}  // namespace constrain
