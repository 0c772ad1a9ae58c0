// Follows many texts at once: the tokens of a vocabulary, along their trie.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/inner.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// Memory for walks, kept from one to the next.
struct WalkScratch {
  /// The heads after each byte of a path through the trie.
  struct Level {
    const Row* row;  ///< of `head`, where it is the only one and nothing can happen outside its rule
    Head head;
    size_t begin, end;         ///< the others in `heads`, back to back, so that going back up is an index
    const Trie::Jumps* jumps;  ///< of the node, where it has many children
    ByteSet bytes;             ///< with which something may go on, where there are jumps
    uint32_t node_end;         ///< the node after its subtree
    bool inside;               ///< only the bytes in `likely` are followed
    ByteSet likely;
  };
  /// The tokens and exits so far, when all strings with one first byte had been visited.
  struct Run {
    uint8_t byte;
    size_t tokens_end, exits_end;
  };
  Arena arena;
  std::vector<Head> heads, merged;
  std::vector<Level> levels;
  std::vector<TokenId> tokens;
  std::vector<uint32_t> exits;
  std::vector<Run> runs;
};

/// Walks with readings of a text through the trie.
class TrieWalk {
 public:
  /// An interning walk makes equal heads equal in address as well, for those who remember what they came to.
  TrieWalk(const CompiledGrammar& grammar, WalkScratch& scratch, bool interning = false);
  ~TrieWalk();
  TrieWalk(const TrieWalk&) = delete;
  TrieWalk& operator=(const TrieWalk&) = delete;

  /// Visits the strings below `root` that may follow `from`, which stands after the string of `root`, and appends
  /// their tokens to `tokens`. Only strings are visited that go on with one of `first`.
  void run(const Trie& trie, uint32_t root, std::span<const Head> from, const ByteSet& first = ByteSet::all());

  /// The same for strings of which all bytes, up to and with the first that is not `inside`, are likely to begin a
  /// shortest end where they come.
  void run_likely(const Trie& trie, std::span<const Head> from, const ByteSet& inside);

  /// The same for a single frame, of which nothing is known but that `depth` others wait below it. Appends to `exits`
  /// the nodes at which it is over, and the rest of the string is for those others to take. Only strings are visited
  /// that begin with one of `first`; `runs` is appended to.
  using Run = WalkScratch::Run;
  void run_alone(const Trie& trie, StateId state, Reg reg, uint32_t depth, const ByteSet& first);

  /// Notes that what follows depends on the frames of a configuration.
  void consult(const Configuration& configuration) { store_.consult(configuration); }

  /// The smallest depth of a configuration that was consulted.
  uint32_t lowest() const { return store_.lowest(); }

  /// Where it is recorded what rules ask of frames.
  void record(Footprint& footprint) { registers_.footprint = &footprint; }

  /// The outcome depended on more than rules tell in their descriptions.
  bool indescribable() const { return registers_.indescribable; }

  /// Where the heads of a walk live.
  ConfigurationStore& store() { return store_; }
  Registers& registers() { return registers_; }

  /// Where it is set, only tokens are appended that lead to heads for which it holds.
  std::function<bool(std::span<const Head>)> admits;

  std::vector<TokenId>& tokens;
  std::vector<uint32_t>& exits;
  std::vector<Run>& runs;
  uint64_t visited = 0;  ///< nodes looked at

 private:
  using Level = WalkScratch::Level;

  void walk(const Trie& trie, uint32_t child, size_t base);
  template <class Visit>
  void for_each_child(const Trie& trie, uint32_t root, const ByteSet& first, const Visit& visit);
  void enter(const Trie& trie, uint32_t node, size_t begin, Level& made);
  void enter_alone(const Trie& trie, uint32_t node, const Head& head, size_t begin, Level& made);
  void go_inside(uint8_t byte, Level& made) const;
  ByteSet likely_bytes(const Level& level) const;
  void step(const Level& above, uint8_t byte);
  void take(const Trie& trie, uint32_t node, std::span<const Head> heads);
  bool at_exit(size_t begin);
  void collect(const Configuration& configuration, ByteSet& bytes);
  void collect(const Head& head, ByteSet& bytes);
  static uint32_t skip(const Trie& trie, const Level& above, uint32_t node);

  const CompiledGrammar& grammar_;
  Registers registers_;
  ConfigurationStore store_;
  Stepper stepper_;
  std::vector<Head>&heads_, &merged_;
  std::vector<Level>& levels_;
  WalkScratch& scratch_;
  const Configuration* bottom_ = nullptr;  // stands for the frames that are not known
  ByteSet inside_;                         // bytes of which only likely ones are followed
};

}  // namespace constrain
